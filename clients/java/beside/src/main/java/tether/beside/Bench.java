package tether.beside;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * tether-java beside the others, each with its real client: hand-overs between programs that take
 * the lock as fast as they can, the time to take and give back a free lock at a fixed rate, and the
 * time from the death of the holder to the next grant.
 *
 * <p>All ways take turns, round by round, and report their median round. Arguments: {@code --short}
 * measures a moment of each, to see that it works; {@code --write FILE} renews the section of a
 * page. TETHER_SERVER and TETHER_MODULE say which server it is.
 */
final class Bench {
    private static final String TITLE = "## Java: beside the others' own clients";
    private static final int CONTENDERS = 8;

    /** How much of everything. */
    private record Size(
            int rounds, long warmUpMs, long contestMs, int rate, int steps, int deaths) {}

    private static final Size FULL = new Size(5, 10_000, 5_000, 200, 30_000, 20);
    private static final Size SHORT = new Size(1, 500, 500, 50, 50, 1);

    /** What was measured of one way, a number for each round or step. */
    private static final class Figures {
        final List<Double> perSecond = new ArrayList<>();
        final List<Double> cpuPerThousand = new ArrayList<>();
        final List<Double> latencies = new ArrayList<>();
        final List<Double> deaths = new ArrayList<>();
    }

    private Bench() {}

    public static void main(String[] words) throws Exception {
        List<String> options = List.of(words);
        if (options.contains("--hold")) {
            hold(Way.valueOf(words[1]), Integer.parseInt(words[2]), words[3]);
            return;
        }
        boolean isShort = options.contains("--short");
        Size size = isShort ? SHORT : FULL;
        Map<Way, Figures> figures = new EnumMap<>(Way.class);
        for (Way way : Way.values()) {
            figures.put(way, new Figures());
        }
        for (int round = 0; round < size.rounds; round++) {
            for (Way way : Way.values()) {
                System.err.println("round " + (round + 1) + ": " + way.title);
                measure(way, size, figures.get(way));
            }
        }
        for (Way way : Way.values()) {
            int samples = isAtOnce(way) ? size.deaths : isShort ? 0 : 1;
            System.err.println("deaths of the holder: " + way.title + ", " + samples);
            for (int sample = 0; sample < samples; sample++) {
                try (OwnServer server = way.serve()) {
                    figures.get(way).deaths.add(death(way, server));
                }
            }
        }
        String section = section(figures);
        System.out.println(section);
        int write = options.indexOf("--write");
        if (write >= 0) {
            renew(Path.of(words[write + 1]), section);
        }
        // Some clients leave threads that are no daemons.
        System.exit(0);
    }

    private static boolean isAtOnce(Way way) {
        return way == Way.TETHER;
    }

    private static void measure(Way way, Size size, Figures figures) throws Exception {
        try (OwnServer server = way.serve()) {
            contest(way, server, size.warmUpMs);
            double before = server.cpu();
            long handovers = contest(way, server, size.contestMs);
            figures.perSecond.add(handovers * 1e3 / size.contestMs);
            figures.cpuPerThousand.add((server.cpu() - before) * 1e6 / Math.max(1, handovers));
            figures.latencies.addAll(atRate(way, server, size.rate, size.steps / size.rounds));
        }
    }

    // ---- hand-overs ----

    private static long contest(Way way, OwnServer server, long ms) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(CONTENDERS);
        List<Way.Program> programs = new ArrayList<>();
        try {
            for (int count = 0; count < CONTENDERS; count++) {
                programs.add(way.open(server.port, "contest"));
            }
            long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ms);
            List<Future<Long>> all = new ArrayList<>();
            for (Way.Program program : programs) {
                all.add(
                        threads.submit(
                                () -> {
                                    long count = 0;
                                    while (true) {
                                        program.lock();
                                        boolean isOver = System.nanoTime() > until;
                                        program.unlock();
                                        if (isOver) {
                                            return count;
                                        }
                                        count++;
                                    }
                                }));
            }
            long sum = 0;
            for (Future<Long> each : all) {
                sum += each.get();
            }
            return sum;
        } finally {
            threads.shutdown();
            for (Way.Program program : programs) {
                program.close();
            }
        }
    }

    // ---- a fixed rate ----

    /**
     * Milliseconds from the moment at which each step was due, so that one that is late makes those
     * behind it late, too.
     */
    private static List<Double> atRate(Way way, OwnServer server, int rate, int steps)
            throws Exception {
        List<Double> took = new ArrayList<>();
        try (Way.Program program = way.open(server.port, "rate")) {
            program.lock();
            program.unlock();
            long apart = TimeUnit.SECONDS.toNanos(1) / rate;
            long due = System.nanoTime() + apart;
            for (int step = 0; step < steps; step++, due += apart) {
                for (long left = due - System.nanoTime();
                        left > 0;
                        left = due - System.nanoTime()) {
                    TimeUnit.NANOSECONDS.sleep(left);
                }
                program.lock();
                program.unlock();
                took.add((System.nanoTime() - due) / 1e6);
            }
        }
        return took;
    }

    // ---- deaths ----

    /** As a program of its own: takes the lock, says so, and waits for its end. */
    private static void hold(Way way, int port, String name) throws Exception {
        way.open(port, name).lock();
        System.out.println("held");
        Thread.sleep(Long.MAX_VALUE);
    }

    /** Milliseconds from the SIGKILL of the holder to the grant. */
    private static double death(Way way, OwnServer server) throws Exception {
        List<String> words = OwnServer.java();
        words.addAll(
                List.of(
                        Bench.class.getName(),
                        "--hold",
                        way.name(),
                        Integer.toString(server.port),
                        "death"));
        Process holder =
                new ProcessBuilder(words).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        try (Way.Program next = way.open(server.port, "death");
                BufferedReader lines =
                        new BufferedReader(
                                new InputStreamReader(
                                        holder.getInputStream(), StandardCharsets.UTF_8))) {
            if (!"held".equals(lines.readLine())) {
                throw new IOException("the holder did not start: " + words);
            }
            Future<Long> granted =
                    thread.submit(
                            () -> {
                                next.lock();
                                long at = System.nanoTime();
                                next.unlock();
                                return at;
                            });
            TimeUnit.MILLISECONDS.sleep(200); // Until it stands in line, of whatever kind.
            long killed = System.nanoTime();
            holder.destroyForcibly();
            return (granted.get() - killed) / 1e6;
        } finally {
            holder.destroyForcibly();
            thread.shutdown();
        }
    }

    // ---- what it says ----

    /** The figures; benches/servers/report.md has the prose of this section. */
    private static String section(Map<Way, Figures> figures) throws IOException {
        StringBuilder text = new StringBuilder(TITLE + "\n\n- Measured on ");
        text.append(machine())
                .append(
                        "\n\n| | hand-overs per second | server CPU per 1,000 | take and give back: p50 | p99 | p99.99 | killed | |\n")
                .append("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
        figures.forEach(
                (way, of) ->
                        text.append(
                                String.format(
                                        Locale.ROOT,
                                        "| %s | %.0f | %.0f ms | %.2f ms | %.2f ms | %.2f ms | %s | %s |%n",
                                        way.title,
                                        quantile(of.perSecond, 0.5),
                                        quantile(of.cpuPerThousand, 0.5),
                                        quantile(of.latencies, 0.5),
                                        quantile(of.latencies, 0.99),
                                        quantile(of.latencies, 0.9999),
                                        killed(of.deaths),
                                        way.about)));
        return text.toString();
    }

    private static String killed(List<Double> deaths) {
        return deaths.isEmpty()
                ? "not measured"
                : String.format(
                        Locale.ROOT,
                        "%.1f ms, %.1f ms",
                        quantile(deaths, 0.5),
                        quantile(deaths, 1));
    }

    private static double quantile(List<Double> values, double share) {
        double[] sorted = values.stream().mapToDouble(Double::doubleValue).sorted().toArray();
        int place = (int) Math.ceil(share * sorted.length) - 1;
        return sorted[Math.max(0, Math.min(place, sorted.length - 1))];
    }

    private static String machine() throws IOException {
        Process version =
                new ProcessBuilder(OwnServer.needed("TETHER_SERVER"), "--version").start();
        String server = new String(version.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        return "%s (UTC): %d processors, Java %s, %s."
                .formatted(
                        LocalDate.now(ZoneOffset.UTC),
                        Runtime.getRuntime().availableProcessors(),
                        System.getProperty("java.version"),
                        Arrays.stream(server.strip().split(" "))
                                .limit(3)
                                .reduce((one, two) -> one + " " + two)
                                .orElse(""));
    }

    /** Puts the section in place of the former one, or at the end. */
    private static void renew(Path page, String section) throws IOException {
        String text = Files.readString(page);
        int from = text.indexOf(TITLE);
        if (from < 0) {
            Files.writeString(page, text.stripTrailing() + "\n\n" + section);
            return;
        }
        int to = text.indexOf("\n## ", from + TITLE.length());
        String after = to < 0 ? "" : text.substring(to);
        Files.writeString(page, text.substring(0, from) + section + after);
    }
}
