package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.random.RandomGenerator;
import java.util.random.RandomGeneratorFactory;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Programs that share a lock, and faults: no two rely on it at the same time, somebody has it again
 * after each fault, and in the end nobody has it. TETHER_FAULTS says how many.
 *
 * <p>They have sessions, and their grants are acknowledged by the replica: without a session a cut
 * frees the lock in the moment in which the holder may hear of it, and not before.
 */
@Timeout(4 * 3600)
class CampaignTest {
    private static final int FAULTS =
            Integer.parseInt(System.getenv().getOrDefault("TETHER_FAULTS", "9"));
    private static final int WORKERS = 3;
    private static final String[] FILES = {
        "--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0"
    };
    private static final Pattern PORT_AND_NAME =
            Pattern.compile("addr=\\S+:(\\d+) .*?name=(worker-\\d+)");

    @Test
    void anOverlapIsFound() {
        assertEquals(0, overlapsWith(21, 2));
        assertEquals(1, overlapsWith(20, 2));
        assertEquals(1, overlapsWith(21, 1));
    }

    private static int overlapsWith(long from, long token) {
        Beliefs beliefs = new Beliefs();
        beliefs.add("b", "k", token, from);
        beliefs.add("a", "k", 1, 10);
        beliefs.add("a", "k", 1, 20);
        beliefs.add("c", "other", 1, 15);
        return beliefs.overlaps().size();
    }

    @Test
    void withoutChecksAStoppedHolderOverlaps() throws Exception {
        try (Campaign campaign = new Campaign("blind")) {
            campaign.startWorkers();
            for (int count = 0; campaign.beliefs.overlaps().isEmpty(); count++) {
                assertTrue(count < 20, "no overlap in twenty attempts");
                campaign.stopAndCut(campaign.holder(), 2 * CampaignWorker.GRACE.toMillis());
                campaign.awaitGrants("a holder that was stopped");
            }
        }
    }

    @Test
    void noTwoRelyOnTheLock() throws Exception {
        Map<String, Integer> struck = new TreeMap<>();
        try (Campaign campaign = new Campaign("checking")) {
            campaign.startWorkers();
            for (int number = 0; number < FAULTS; number++) {
                String fault = campaign.strike(number);
                struck.merge(fault, 1, Integer::sum);
                campaign.awaitGrants(fault);
                if (number % 30 == 29) {
                    campaign.killWorkers();
                    campaign.awaitNoHolds();
                    campaign.startWorkers();
                }
            }
            campaign.killWorkers();
            campaign.awaitNoHolds();
            List<String> overlaps = campaign.beliefs.overlaps();
            System.out.printf(
                    "%d faults %s: %d grants, told %s, %d overlaps, 0 orphans%n",
                    FAULTS, struck, campaign.beliefs.size(), campaign.told, overlaps.size());
            assertEquals(List.of(), overlaps);
            assertEquals(List.of(), campaign.errors);
        }
    }

    private record Worker(String name, Process process) {}

    /** Two servers, one of which follows the other, each at the end of links; and workers. */
    private static final class Campaign implements AutoCloseable {
        final Map<String, Integer> told = new ConcurrentHashMap<>();
        final List<String> errors = Collections.synchronizedList(new ArrayList<>());
        final Beliefs beliefs = new Beliefs();
        private final String kind;
        private final RandomGenerator random =
                RandomGeneratorFactory.of("L64X128MixRandom").create(11);
        private final List<Worker> workers = new ArrayList<>();
        private final Map<TestServer, Links> links = new ConcurrentHashMap<>();
        private TestServer master;
        private TestServer replica;
        private int named;

        Campaign(String kind) throws IOException {
            this.kind = kind;
            master = server();
            replica = server();
            follow(replica, master);
        }

        private TestServer server() throws IOException {
            TestServer server = TestServer.start(FILES);
            Links way = new Links(server.port);
            links.put(server, way);
            announce(server);
            return server;
        }

        private void announce(TestServer server) {
            String port = Integer.toString(links.get(server).port);
            server.ask("CONFIG", "SET", "replica-announce-port", port);
        }

        /** Through links, so that a client that is led to a master comes by them, too. */
        private void follow(TestServer follower, TestServer leader) {
            follower.ask("REPLICAOF", "127.0.0.1", Integer.toString(links.get(leader).port));
            awaitReplica();
        }

        private void awaitReplica() {
            TestServer.eventually(
                    "the replica is in step",
                    () -> {
                        try (TestServer.Raw raw = new TestServer.Raw(master)) {
                            raw.ask("INCR", "in-step");
                            return Long.valueOf(1).equals(raw.ask("WAIT", "1", "1000"));
                        }
                    });
        }

        // ---- workers ----

        void startWorkers() throws IOException {
            while (workers.size() < WORKERS) {
                String name = "worker-" + named++;
                Process process =
                        new ProcessBuilder(
                                        Path.of(System.getProperty("java.home"), "bin", "java")
                                                .toString(),
                                        "-XX:+UseSerialGC",
                                        "-XX:TieredStopAtLevel=1",
                                        "-Xshare:auto",
                                        "-Xmx64m",
                                        "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
                                        "-cp",
                                        System.getProperty("java.class.path"),
                                        CampaignWorker.class.getName(),
                                        kind,
                                        name,
                                        "redis://127.0.0.1:" + links.get(master).port,
                                        "redis://127.0.0.1:" + links.get(replica).port)
                                .redirectErrorStream(true)
                                .start();
                Worker worker = new Worker(name, process);
                workers.add(worker);
                Thread reader = new Thread(() -> read(worker));
                reader.setDaemon(true);
                reader.start();
            }
            awaitGrants("the start");
        }

        private void read(Worker worker) {
            try (BufferedReader lines =
                    new BufferedReader(
                            new InputStreamReader(
                                    worker.process.getInputStream(), StandardCharsets.UTF_8))) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    if (line.startsWith("X ")) {
                        told.merge(line.substring(2), 1, Integer::sum);
                    } else if (!beliefs.read(worker.name, line) && worker.process.isAlive()) {
                        errors.add(worker.name + ": " + line);
                    }
                }
            } catch (IOException over) {
                // It was killed.
            }
        }

        /** Two grants that were not there before. */
        void awaitGrants(String after) {
            int before = beliefs.size();
            TestServer.eventually(
                    "grants after " + after + " " + errors, () -> beliefs.size() > before + 1);
        }

        /** The worker that has the lock, or had it last. */
        Worker holder() {
            String name = beliefs.last("campaign").orElseThrow();
            return workers.stream()
                    .filter(worker -> worker.name.equals(name))
                    .findFirst()
                    .orElse(workers.get(0));
        }

        void killWorkers() throws InterruptedException {
            for (Worker worker : workers) {
                worker.process.destroyForcibly().waitFor();
            }
            workers.clear();
        }

        /** Nobody holds anything, of nobody anything is left, at both servers. */
        void awaitNoHolds() {
            awaitReplica();
            for (TestServer server : List.of(master, replica)) {
                TestServer.eventually(
                        "nothing is held",
                        () ->
                                List.of("0", List.of())
                                                .equals(
                                                        server.ask(
                                                                "LOCK.LIST", "0", "COUNT", "10000"))
                                        && Long.valueOf(0)
                                                .equals(server.ask("EXISTS", "campaign")));
            }
        }

        // ---- faults ----

        String strike(int number) throws Exception {
            Worker worker =
                    random.nextInt(3) > 0 ? holder() : workers.get(random.nextInt(workers.size()));
            long moment = random.nextLong(100, 2 * CampaignWorker.GRACE.toMillis());
            switch (number % 9) {
                case 0 -> {
                    worker.process.destroyForcibly().waitFor();
                    workers.remove(worker);
                    startWorkers();
                    return "SIGKILL of a client";
                }
                case 1 -> {
                    TestServer.signal(worker.process, "STOP");
                    pause(moment);
                    TestServer.signal(worker.process, "CONT");
                    return "SIGSTOP of a client";
                }
                case 2 -> {
                    stopAndCut(worker, moment);
                    return "SIGSTOP of a client that is cut off";
                }
                case 3 -> {
                    cut(worker);
                    return "cut link";
                }
                case 4 -> {
                    freeze(worker, true);
                    pause(moment);
                    freeze(worker, false);
                    return "silent link";
                }
                case 5 -> {
                    master.signal("STOP");
                    pause(moment);
                    master.signal("CONT");
                    return "SIGSTOP of the server";
                }
                case 6 -> {
                    master.kill();
                    master.startAgain();
                    announce(master);
                    awaitReplica();
                    return "restart of the server";
                }
                case 7 -> {
                    failOver();
                    return "failover";
                }
                default -> {
                    promote();
                    return "death of the master";
                }
            }
        }

        private static void pause(long ms) throws InterruptedException {
            TimeUnit.MILLISECONDS.sleep(ms);
        }

        void stopAndCut(Worker worker, long ms) throws InterruptedException {
            TestServer.signal(worker.process, "STOP");
            cut(worker);
            pause(ms);
            TestServer.signal(worker.process, "CONT");
        }

        private void cut(Worker worker) {
            ports(worker).forEach(links.get(master)::cut);
        }

        private void freeze(Worker worker, boolean isFrozen) {
            ports(worker).forEach(port -> links.get(master).freeze(port, isFrozen));
        }

        /** From where the master sees a worker. */
        private List<Integer> ports(Worker worker) {
            List<Integer> ports = new ArrayList<>();
            String clients = (String) master.ask("CLIENT", "LIST");
            for (String line : clients.split("\n")) {
                Matcher client = PORT_AND_NAME.matcher(line);
                if (client.find() && client.group(2).equals(worker.name)) {
                    ports.add(Integer.parseInt(client.group(1)));
                }
            }
            return ports;
        }

        /** As an operator asks for it. */
        private void failOver() {
            TestServer.eventually("a failover begins", () -> "OK".equals(master.ask("FAILOVER")));
            TestServer former = master;
            master = replica;
            replica = former;
            TestServer.eventually(
                    "it is over",
                    () -> {
                        try {
                            return List.of("master").equals(firstOfRole(master))
                                    && List.of("slave").equals(firstOfRole(replica));
                        } catch (IllegalStateException closed) {
                            return false; // As connections are in the course of it.
                        }
                    });
            awaitReplica();
        }

        private static List<?> firstOfRole(TestServer server) {
            return ((List<?>) server.ask("ROLE")).subList(0, 1);
        }

        /** As Sentinel does it: the former master comes back as a replica. */
        private void promote() throws Exception {
            master.kill();
            TestServer former = master;
            master = replica;
            replica = former;
            master.ask("REPLICAOF", "NO", "ONE");
            replica.startAgain(
                    "--replicaof",
                    "127.0.0.1 " + links.get(master).port,
                    "--replica-announce-port",
                    Integer.toString(links.get(replica).port));
            awaitReplica();
        }

        @Override
        public void close() throws Exception {
            killWorkers();
            for (Map.Entry<TestServer, Links> each : links.entrySet()) {
                each.getKey().signal("CONT");
                each.getValue().close();
                each.getKey().close();
            }
            assertTrue(workers.isEmpty());
        }
    }
}
