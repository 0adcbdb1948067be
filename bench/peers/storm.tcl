# Hypercube-neighbour storm on ns-2: static routes by delay, tracing off, one constant-bit-rate source per pair.
#
#   ns storm.tcl NETWORK PAIRS BURSTS [SCHEDULER] [lean|all] [routes|monitor]
#
# SCHEDULER  auto (default), Calendar, Splay, Heap, Map or List. Measured, lean, million hops a second: at n=200
#            Calendar 2.4, Heap 1.6, Map 1.5, Splay 1.4, List 0.08; at n=1000 Splay 0.9, Heap 0.8, Map 0.6, Calendar
#            0.25, whose buckets grow long when many sources send at one instant. So auto is Calendar for small storms
#            and Splay for large ones.
# lean|all   the packet headers. "all" is ns-2 as it starts, with a header for every protocol it knows cleared in every
#            packet; "lean" (default) keeps only those that a UDP packet touches, the manual's advice for speed.
# routes     hops = bursts x the length of each pair's route, as ns-2 computed it: no cost in the run (default).
# monitor    hops = departures counted by a queue monitor on every link: slow, for checking "routes".
#
# A source is Application/Traffic/CBR over Agent/UDP: it sends from C++, where a Tcl command per packet would cost more
# than the packet's hops. Agent/UDP adds nothing to the size, so 232 B are on the wire. Set-up ends with the first
# event; it is ns-2 as shipped. At n=1000 most of it is a list of links kept for the animator
# (Simulator::register-nam-linkconfig), quadratic in their number: with that procedure emptied, 29 s instead of 75.

set setup_began_us [clock microseconds]
set packet_size_bytes 232
set burst_interval_s 0.001
# Between the 1576 pairs of n=200, where Calendar is the fastest, and the 4500 of n=500, where Splay is.
set calendar_pairs_max 2500

proc usage {message} {
    puts stderr "storm.tcl: $message; usage: ns storm.tcl NETWORK PAIRS BURSTS ?SCHEDULER? ?lean|all? ?routes|monitor?"
    exit 2
}

proc rows {file} {
    set channel [open $file]
    set text [read $channel]
    close $channel
    set found {}
    foreach line [split $text \n] {
        set line [string trim [regsub {#.*} $line {}]]
        if {$line ne ""} {lappend found [regexp -all -inline {\S+} $line]}
    }
    return $found
}

# Agent::initpkt writes the IP, Flags and NV headers, Agent/UDP the RTP header; the common header is always there.
proc keep_headers {choice} {
    if {$choice eq "lean"} {
        remove-all-packet-headers
        add-packet-header IP Flags NV RTP
    }
}

proc build_network {ns cables} {
    global node sink
    set members 0
    foreach cable $cables {
        foreach end [lrange $cable 0 1] {
            if {$end >= $members} {set members [expr {$end + 1}]}
        }
    }
    for {set rank 0} {$rank < $members} {incr rank} {
        set node($rank) [$ns node]
        set sink($rank) [new Agent/Null]
        $ns attach-agent $node($rank) $sink($rank)
    }
    foreach cable $cables {
        lassign $cable a b delay_ms bandwidth_bps
        $ns duplex-link $node($a) $node($b) $bandwidth_bps ${delay_ms}ms DropTail
        $ns cost $node($a) $node($b) $delay_ms
        $ns cost $node($b) $node($a) $delay_ms
    }
}

proc monitor_links {ns cables} {
    global node
    set monitors {}
    foreach cable $cables {
        lassign $cable a b
        lappend monitors [$ns monitor-queue $node($a) $node($b) ""] [$ns monitor-queue $node($b) $node($a) ""]
    }
    return $monitors
}

proc build_sources {ns pairs bursts} {
    global node sink packet_size_bytes burst_interval_s
    set sources {}
    foreach pair $pairs {
        lassign $pair from to
        set agent [new Agent/UDP]
        $agent set packetSize_ $packet_size_bytes
        $ns attach-agent $node($from) $agent
        $ns simplex-connect $agent $sink($to)
        set source [new Application/Traffic/CBR]
        $source set packetSize_ $packet_size_bytes
        $source set interval_ $burst_interval_s
        $source set maxpkts_ $bursts
        $source set random_ 0
        $source attach-agent $agent
        lappend sources $source
    }
    return $sources
}

proc begin {} {
    global run_began_us sources
    set run_began_us [clock microseconds]
    foreach source $sources {$source start}
}

proc hops_by_routes {ns pairs bursts} {
    set logic [$ns get-routelogic]
    set hops 0
    foreach pair $pairs {
        lassign $pair here to
        while {$here != $to} {
            set here [$logic lookup $here $to]
            incr hops
        }
    }
    return [expr {$hops * $bursts}]
}

proc hops_by_monitors {monitors} {
    set hops 0
    foreach monitor $monitors {set hops [expr {$hops + int([$monitor set pdepartures_])}]}
    return $hops
}

if {$argc < 3 || $argc > 6} {usage "expected 3 to 6 arguments, got $argc"}
lassign $argv network_file pairs_file bursts scheduler headers counting
if {$scheduler eq ""} {set scheduler auto}
if {$headers eq ""} {set headers lean}
if {$counting eq ""} {set counting routes}
if {![string is integer -strict $bursts] || $bursts < 1} {usage "bursts $bursts: choose at least 1"}
if {$headers ni {lean all}} {usage "headers $headers: choose lean or all"}
if {$counting ni {routes monitor}} {usage "counting $counting: choose routes or monitor"}

set cables [rows $network_file]
set pairs [rows $pairs_file]
if {$scheduler eq "auto"} {
    set scheduler [expr {[llength $pairs] <= $calendar_pairs_max ? "Calendar" : "Splay"}]
}

keep_headers $headers
set ns [new Simulator]
$ns use-scheduler $scheduler
$ns rtproto Static
# Unlimited queues, and a time to live longer than any route.
Queue/DropTail set limit_ 2000000000
Agent set ttl_ 1000000
build_network $ns $cables
if {$counting eq "monitor"} {set monitors [monitor_links $ns $cables]}
set sources [build_sources $ns $pairs $bursts]
$ns at 0.0 begin
# Returns when no event is left. The clock then shows the last arrival: a link frees itself before its packet arrives.
$ns run
set run_ended_us [clock microseconds]

if {$counting eq "monitor"} {
    set hops [hops_by_monitors $monitors]
} else {
    set hops [hops_by_routes $ns $pairs $bursts]
}
puts [format {{"version": "%s", "setup_s": %.6f, "run_s": %.6f, "hops": %d, "last_arrival_ms": %.6f}} \
    [lindex [ns-version] 0] [expr {($run_began_us - $setup_began_us) / 1e6}] \
    [expr {($run_ended_us - $run_began_us) / 1e6}] $hops [expr {[$ns now] * 1e3}]]
exit 0
