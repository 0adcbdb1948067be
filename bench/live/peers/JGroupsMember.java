import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.concurrent.CountDownLatch;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.ReceiverAdapter;
import org.jgroups.View;

/**
 * One member of a JGroups group in a process of its own, measured as bench/live/worker.py measures a member of ours.
 *
 * Arguments: configuration file, rank, members, senders, payload bytes, seconds before the measurement, seconds of it.
 */
public final class JGroupsMember extends ReceiverAdapter {
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final int members;
    private final CountDownLatch complete = new CountDownLatch(1);
    private volatile double begin = Double.MAX_VALUE;
    private volatile double end = Double.MAX_VALUE;
    private long total;
    private double[] first;
    private double[] last;

    private JGroupsMember(int members) {
        this.members = members;
    }

    private static double now() {
        return System.currentTimeMillis() / 1e3;
    }

    @Override
    public void viewAccepted(View view) {
        if (view.size() == members) {
            complete.countDown();
        }
    }

    @Override
    public synchronized void receive(Message message) {
        total++;
        if ((total & 63) != 0 || last != null) {
            return;
        }
        double now = now();
        if (first == null && now >= begin) {
            first = new double[] {total, now, SYSTEM.getProcessCpuTime() / 1e9};
        }
        if (first != null && now >= end) {
            last = new double[] {total, now, SYSTEM.getProcessCpuTime() / 1e9};
        }
    }

    private synchronized String report() {
        if (first == null || last == null) {
            return "{\"rate\": 0, \"cpu_us\": 0}";
        }
        double delivered = last[0] - first[0];
        return String.format(
                java.util.Locale.ROOT,
                "{\"rate\": %.1f, \"cpu_us\": %.3f}",
                delivered / (last[1] - first[1]),
                1e6 * (last[2] - first[2]) / delivered);
    }

    public static void main(String[] arguments) throws Exception {
        int rank = Integer.parseInt(arguments[1]);
        int members = Integer.parseInt(arguments[2]);
        int senders = Integer.parseInt(arguments[3]);
        byte[] payload = new byte[Integer.parseInt(arguments[4])];
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        JGroupsMember member = new JGroupsMember(members);
        JChannel channel = new JChannel(arguments[0]);
        channel.setReceiver(member);
        channel.connect("bench");
        member.complete.await();
        System.out.println("ready");
        double start = Double.parseDouble(input.readLine());
        member.begin = start + Double.parseDouble(arguments[5]);
        member.end = member.begin + Double.parseDouble(arguments[6]);
        Thread.sleep((long) Math.max(0, 1e3 * (start - now())));
        while (rank < senders && now() < member.end + 0.2) {
            for (int sent = 0; sent < 64; sent++) {
                channel.send(new Message(null, null, payload));
            }
        }
        Thread.sleep((long) Math.max(0, 1e3 * (member.end + 1.5 - now())));
        System.out.println(member.report());
        input.readLine();
        System.exit(0);
    }
}
