package tether.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.random.RandomGenerator;
import java.util.random.RandomGeneratorFactory;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import tether.locks.Beliefs;
import tether.locks.TestServer;

/**
 * Three instances of an application with jobs, one of which is killed again and again: no job runs
 * twice at a time, and each goes on elsewhere. TETHER_KILLS says how often; from a hundred on, the
 * next run must begin within a second, which needs a machine that does nothing else.
 */
@Timeout(4 * 3600)
class JobsTest {
    private static final int KILLS =
            Integer.parseInt(System.getenv().getOrDefault("TETHER_KILLS", "3"));
    private static final int LONG_FORM = 100;
    private static final long WITHIN_NS = 1_000_000_000L;
    private static final int INSTANCES = 3;

    private record Instance(String name, Process process) {}

    private final Beliefs beliefs = new Beliefs();
    private final List<Instance> instances = new ArrayList<>();
    private int started;

    private void start(TestServer server) throws IOException {
        Process process =
                new ProcessBuilder(
                                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                                "-XX:+UseSerialGC",
                                "-XX:TieredStopAtLevel=1",
                                "-Xmx128m",
                                "-cp",
                                System.getProperty("java.class.path"),
                                JobsApplication.class.getName(),
                                server.uri())
                        .redirectErrorStream(true)
                        .start();
        Instance instance = new Instance("instance-" + started++, process);
        instances.add(instance);
        Thread reader = new Thread(() -> read(instance));
        reader.setDaemon(true);
        reader.start();
    }

    private void read(Instance instance) {
        try (BufferedReader lines =
                new BufferedReader(
                        new InputStreamReader(
                                instance.process.getInputStream(), StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                beliefs.read(instance.name, line);
            }
        } catch (IOException over) {
            // It was killed.
        }
    }

    /** When the first run began after that moment, or 0. */
    private long nextRun(String job, long after) {
        return beliefs.ofLock(job).stream()
                .mapToLong(Beliefs.Belief::from)
                .filter(from -> from > after)
                .min()
                .orElse(0);
    }

    @Test
    void aKilledInstanceStopsNoJob() throws Exception {
        RandomGenerator random = RandomGeneratorFactory.of("L64X128MixRandom").create(5);
        Map<String, Long> longest = new HashMap<>();
        int late = 0;
        try (TestServer server = TestServer.start()) {
            try {
                for (int count = 0; count < INSTANCES; count++) {
                    start(server);
                }
                for (int kill = 0; kill < KILLS; kill++) {
                    String aim = JobsApplication.JOBS[kill % JobsApplication.JOBS.length];
                    long sinceNow = System.nanoTime();
                    // All three stand in line or work, so that the kill leaves two.
                    for (String job : JobsApplication.JOBS) {
                        TestServer.eventually(
                                "all instances share " + job,
                                () ->
                                        server.crowd("job:" + job).stream()
                                                        .mapToInt(Integer::intValue)
                                                        .sum()
                                                >= INSTANCES);
                        TestServer.eventually(job + " runs", () -> nextRun(job, sinceNow) > 0);
                    }
                    Instance victim =
                            random.nextInt(4) == 0
                                    ? instances.get(random.nextInt(INSTANCES))
                                    : instances.stream()
                                            .filter(
                                                    each ->
                                                            beliefs.last(aim)
                                                                    .orElseThrow()
                                                                    .equals(each.name))
                                            .findFirst()
                                            .orElseThrow();
                    long at = System.nanoTime();
                    victim.process.destroyForcibly().waitFor();
                    instances.remove(victim);
                    for (String job : JobsApplication.JOBS) {
                        TestServer.eventually(
                                job + " goes on after a kill", () -> nextRun(job, at) > 0);
                        long took = nextRun(job, at) - at;
                        longest.merge(job, took, Math::max);
                        late += took > WITHIN_NS ? 1 : 0;
                    }
                    start(server);
                }
            } finally {
                for (Instance each : instances) {
                    each.process.destroyForcibly().waitFor();
                }
            }
            TestServer.eventually(
                    "nothing is held",
                    () ->
                            List.of("0", List.of())
                                    .equals(server.ask("LOCK.LIST", "0", "COUNT", "10000")));
        }
        System.out.printf(
                "%d kills: %d runs, %d overlaps; the next run began after %s ns at most, %d times after more than a second%n",
                KILLS, beliefs.size(), beliefs.overlaps().size(), longest, late);
        assertEquals(List.of(), beliefs.overlaps());
        assertTrue(KILLS < LONG_FORM || late == 0, late + " runs began late");
    }
}
