package tether.locks;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLSocketFactory;

/** Asks all Sentinels where the master is (P-CONN-7). */
final class Sentinels implements Node.Addresses {
    private record Answer(Address master) {}

    private final String name;
    private final List<Address> sentinels;
    private final Address like;
    private final SSLSocketFactory tls;
    private final boolean verifiesHost;

    /** {@code like}: has credentials, database and TLS of the master. */
    Sentinels(
            String name,
            List<Address> sentinels,
            Address like,
            SSLSocketFactory tls,
            boolean verifiesHost) {
        this.name = name;
        this.sentinels = List.copyOf(sentinels);
        this.like = like;
        this.tls = tls;
        this.verifiesHost = verifiesHost;
    }

    @Override
    public List<Address> find(double within, int slot) throws Greeter.RefusedException {
        BlockingQueue<Answer> answers = new ArrayBlockingQueue<>(sentinels.size());
        for (Address sentinel : sentinels) {
            Thread thread =
                    new Thread(
                            () -> answers.add(new Answer(ask(sentinel, within))),
                            "tether-sentinel");
            thread.setDaemon(true);
            thread.start();
        }
        Map<Address, Integer> named = new HashMap<>();
        long until = System.nanoTime() + (long) (within * 1e6);
        for (int count = 0; count < sentinels.size(); count++) {
            Address master = next(answers, until);
            if (master != null && named.merge(master, 1, Integer::sum) > sentinels.size() / 2) {
                return List.of(master);
            }
        }
        return named.entrySet().stream()
                .max(Map.Entry.comparingByValue())
                .map(most -> List.of(most.getKey()))
                .orElseThrow(
                        () ->
                                new Greeter.RefusedException(
                                        Problem.unreachable(
                                                "UNREACHABLE",
                                                "no Sentinel names a master of the name " + name)));
    }

    private static Address next(BlockingQueue<Answer> answers, long until) {
        try {
            Answer answer = answers.poll(until - System.nanoTime(), TimeUnit.NANOSECONDS);
            return answer == null ? null : answer.master;
        } catch (InterruptedException nobodysBusiness) {
            return null;
        }
    }

    /** Null if it does not say. */
    private Address ask(Address sentinel, double within) {
        int ms = (int) Math.ceil(within);
        try (Wire wire = Wire.open(sentinel, ms, tls, verifiesHost)) {
            wire.setPatience(ms);
            Resp resp = new Resp(wire::read);
            List<List<String>> words = new ArrayList<>();
            if (sentinel.password() != null) {
                String user = sentinel.user() == null ? "default" : sentinel.user();
                words.add(List.of("AUTH", Resp.bytesOf(user), Resp.bytesOf(sentinel.password())));
            }
            words.add(List.of("SENTINEL", "GET-MASTER-ADDR-BY-NAME", Resp.bytesOf(name)));
            wire.write(Resp.encode(words));
            Object reply = null;
            for (int count = 0; count < words.size(); count++) {
                reply = resp.read();
            }
            if (reply instanceof List<?> place && place.size() == 2) {
                return like.at((String) place.get(0), Integer.parseInt((String) place.get(1)));
            }
            return null;
        } catch (IOException | RuntimeException silent) {
            return null;
        }
    }
}
