// Hypercube-neighbour storm on ns-3's raw packet path: point-to-point net devices, no IP stack, own next-hop table.
//
//   storm_ns3 NETWORK PAIRS BURSTS SCHEDULER HEADERS
//
// SCHEDULER is ns3::MapScheduler (as ns-3 starts), ns3::PriorityQueueScheduler (the fastest here), ns3::HeapScheduler,
// ns3::CalendarScheduler or ns3::ListScheduler.
//
// The device adds a PPP header of 2 B, so that 232 B are on the wire. With HEADERS `own` a packet says its destination in
// a header of 4 B, as an ns-3 program does. With `none` the destination is looked up by the packet's unique number,
// which copies on the way keep: no real program could, but it is what ns-3 costs at the least. Debian's libraries come with
// logging compiled in, though not enabled.

#include "ns3/core-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <limits>
#include <queue>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace ns3;

namespace
{

const uint32_t kPacketSizeBytes = 232;
const uint32_t kPppHeaderBytes = 2;
const uint16_t kProtocol = 0x0800; // PPP carries IPv4 and IPv6 only; nobody reads the payload
const int64_t kBurstIntervalNs = 1000000;

struct Cable
{
    uint32_t from;
    uint32_t to;
    int64_t delayNs;
    uint64_t bandwidthBps;
};

struct Neighbour
{
    uint32_t rank;
    int64_t delayNs;
    NetDevice* device;
};

// Where a packet goes, in front of its payload.
class Destination : public Header
{
  public:
    Destination() = default;

    explicit Destination(uint32_t rank)
        : m_rank(rank)
    {
    }

    uint32_t Rank() const
    {
        return m_rank;
    }

    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("cubecast::Destination").SetParent<Header>().AddConstructor<Destination>();
        return id;
    }

    TypeId GetInstanceTypeId() const override
    {
        return GetTypeId();
    }

    uint32_t GetSerializedSize() const override
    {
        return sizeof(m_rank);
    }

    void Serialize(Buffer::Iterator start) const override
    {
        start.WriteHtonU32(m_rank);
    }

    uint32_t Deserialize(Buffer::Iterator start) override
    {
        m_rank = start.ReadNtohU32();
        return sizeof(m_rank);
    }

    void Print(std::ostream& out) const override
    {
        out << m_rank;
    }

  private:
    uint32_t m_rank = 0;
};

using Pairs = std::vector<std::pair<uint32_t, uint32_t>>;

std::vector<std::vector<Neighbour>> g_neighbours;
std::vector<std::vector<NetDevice*>> g_nextDevice; // by node, by destination
std::vector<uint32_t> g_destination;               // by packet number, modulo the pairs
Pairs g_pairs;
uint64_t g_firstUid = 0;
bool g_ownHeader = false;
uint64_t g_hops = 0;
uint64_t g_delivered = 0;
int64_t g_lastArrivalNs = 0;
std::chrono::steady_clock::time_point g_runBegan;

std::vector<std::string>
Rows(const std::string& file)
{
    std::ifstream in(file);
    if (!in)
    {
        std::cerr << "storm_ns3: cannot read " << file << std::endl;
        std::exit(2);
    }
    std::vector<std::string> rows;
    std::string line;
    while (std::getline(in, line))
    {
        line = line.substr(0, line.find('#'));
        if (line.find_first_not_of(" \t\r") != std::string::npos)
        {
            rows.push_back(line);
        }
    }
    return rows;
}

std::vector<Cable>
ReadCables(const std::string& file)
{
    std::vector<Cable> cables;
    for (const std::string& row : Rows(file))
    {
        Cable cable;
        double delayMs;
        double bandwidthBps;
        std::istringstream(row) >> cable.from >> cable.to >> delayMs >> bandwidthBps;
        cable.delayNs = std::llround(delayMs * 1e6);
        cable.bandwidthBps = std::llround(bandwidthBps);
        cables.push_back(cable);
    }
    return cables;
}

Pairs
ReadPairs(const std::string& file)
{
    Pairs pairs;
    for (const std::string& row : Rows(file))
    {
        uint32_t from;
        uint32_t to;
        std::istringstream(row) >> from >> to;
        pairs.emplace_back(from, to);
    }
    return pairs;
}

inline void
Forward(uint32_t rank, Ptr<Packet> packet, uint32_t destination)
{
    NetDevice* device = g_nextDevice[rank][destination];
    device->Send(packet, device->GetBroadcast(), kProtocol);
}

uint32_t
DestinationOf(Ptr<const Packet> packet)
{
    if (g_ownHeader)
    {
        Destination header;
        packet->PeekHeader(header);
        return header.Rank();
    }
    return g_destination[(packet->GetUid() - g_firstUid) % g_pairs.size()];
}

bool
Arrive(uint32_t rank, Ptr<NetDevice>, Ptr<const Packet> packet, uint16_t, const Address&)
{
    ++g_hops;
    const uint32_t destination = DestinationOf(packet);
    if (rank == destination)
    {
        ++g_delivered;
        g_lastArrivalNs = Simulator::Now().GetNanoSeconds();
        return true;
    }
    // The device copied the packet on reception, so this reference is ours alone.
    Forward(rank, ConstCast<Packet>(packet), destination);
    return true;
}

Ptr<PointToPointNetDevice>
MakeDevice(Ptr<Node> node, Ptr<PointToPointChannel> channel, const Cable& cable)
{
    Ptr<PointToPointNetDevice> device = CreateObject<PointToPointNetDevice>();
    device->SetDataRate(DataRate(cable.bandwidthBps));
    Ptr<DropTailQueue<Packet>> queue = CreateObject<DropTailQueue<Packet>>();
    queue->SetMaxSize(QueueSize(QueueSizeUnit::PACKETS, std::numeric_limits<uint32_t>::max()));
    device->SetQueue(queue);
    device->SetAddress(Mac48Address::Allocate());
    node->AddDevice(device);
    device->Attach(channel);
    device->SetReceiveCallback(MakeBoundCallback(&Arrive, node->GetId()));
    return device;
}

NodeContainer
BuildNetwork(const std::vector<Cable>& cables)
{
    uint32_t members = 0;
    for (const Cable& cable : cables)
    {
        members = std::max({members, cable.from + 1, cable.to + 1});
    }
    NodeContainer nodes;
    nodes.Create(members);
    g_neighbours.resize(members);
    for (const Cable& cable : cables)
    {
        Ptr<PointToPointChannel> channel = CreateObject<PointToPointChannel>();
        channel->SetAttribute("Delay", TimeValue(NanoSeconds(cable.delayNs)));
        auto there = MakeDevice(nodes.Get(cable.from), channel, cable);
        auto back = MakeDevice(nodes.Get(cable.to), channel, cable);
        g_neighbours[cable.from].push_back({cable.to, cable.delayNs, PeekPointer(there)});
        g_neighbours[cable.to].push_back({cable.from, cable.delayNs, PeekPointer(back)});
    }
    return nodes;
}

// Dijkstra from one source; the first device of each route is inherited along the tree.
std::vector<NetDevice*>
RoutesFrom(uint32_t source)
{
    using Entry = std::pair<int64_t, uint32_t>;
    const std::size_t members = g_neighbours.size();
    std::vector<int64_t> distanceNs(members, std::numeric_limits<int64_t>::max());
    std::vector<NetDevice*> first(members, nullptr);
    std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> queue;
    distanceNs[source] = 0;
    queue.emplace(0, source);
    while (!queue.empty())
    {
        const auto [reachedNs, rank] = queue.top();
        queue.pop();
        if (reachedNs > distanceNs[rank])
        {
            continue;
        }
        for (const Neighbour& next : g_neighbours[rank])
        {
            if (reachedNs + next.delayNs < distanceNs[next.rank])
            {
                distanceNs[next.rank] = reachedNs + next.delayNs;
                first[next.rank] = rank == source ? next.device : first[rank];
                queue.emplace(distanceNs[next.rank], next.rank);
            }
        }
    }
    return first;
}

void
Burst()
{
    for (const auto& [from, to] : g_pairs)
    {
        const Destination header(to);
        const uint32_t ownBytes = g_ownHeader ? header.GetSerializedSize() : 0;
        Ptr<Packet> packet = Create<Packet>(kPacketSizeBytes - kPppHeaderBytes - ownBytes);
        if (g_ownHeader)
        {
            packet->AddHeader(header);
        }
        Forward(from, packet, to);
    }
}

void
Begin()
{
    g_runBegan = std::chrono::steady_clock::now();
}

double
Seconds(std::chrono::steady_clock::duration duration)
{
    return std::chrono::duration<double>(duration).count();
}

} // namespace

int
main(int argc, char* argv[])
{
    if (argc != 6 || std::atoi(argv[3]) < 1)
    {
        std::cerr << "usage: storm_ns3 NETWORK PAIRS BURSTS SCHEDULER own|none, bursts at least 1" << std::endl;
        return 2;
    }
    g_ownHeader = std::string(argv[5]) == "own";
    const auto setupBegan = std::chrono::steady_clock::now();
    const int bursts = std::atoi(argv[3]);
    ObjectFactory scheduler;
    scheduler.SetTypeId(argv[4]);
    Simulator::SetScheduler(scheduler);

    const NodeContainer nodes = BuildNetwork(ReadCables(argv[1]));
    g_pairs = ReadPairs(argv[2]);
    for (uint32_t rank = 0; rank < nodes.GetN(); ++rank)
    {
        g_nextDevice.push_back(RoutesFrom(rank));
    }
    for (const auto& pair : g_pairs)
    {
        g_destination.push_back(pair.second);
    }
    // Packet numbers grow by one with each packet made, and each burst makes one for each pair, in order.
    g_firstUid = Create<Packet>(0)->GetUid() + 1;
    Simulator::Schedule(NanoSeconds(0), &Begin);
    for (int burst = 0; burst < bursts; ++burst)
    {
        Simulator::Schedule(NanoSeconds(burst * kBurstIntervalNs), &Burst);
    }
    Simulator::Run();
    const auto runEnded = std::chrono::steady_clock::now();
    if (g_delivered != g_pairs.size() * bursts)
    {
        std::cerr << "storm_ns3: " << g_delivered << " packets arrived of " << g_pairs.size() * bursts << std::endl;
        return 1;
    }
    std::printf("{\"version\": \"%s\", \"setup_s\": %.6f, \"run_s\": %.6f, "
                "\"hops\": %llu, \"last_arrival_ms\": %.6f}\n",
                STORM_NS3_VERSION,
                Seconds(g_runBegan - setupBegan),
                Seconds(runEnded - g_runBegan),
                static_cast<unsigned long long>(g_hops),
                g_lastArrivalNs / 1e6);
    Simulator::Destroy();
    return 0;
}
