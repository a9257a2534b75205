package tether.beside;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/** A server of the benchmark's own, on a free port, in a folder that is removed. */
final class OwnServer implements AutoCloseable {
    private static final long START_WITHIN_NS = 60_000_000_000L;
    private static final double TICKS_PER_SECOND = 100;

    final int port;
    private final Process process;
    private final Path folder;

    private OwnServer(int port, Process process, Path folder) {
        this.port = port;
        this.process = process;
        this.folder = folder;
    }

    /** TETHER_SERVER, with these options. */
    static OwnServer redis(String... options) throws IOException, InterruptedException {
        int port = freePort();
        Path folder = Files.createTempDirectory("tether-bench-");
        List<String> words = new ArrayList<>(List.of(needed("TETHER_SERVER"), "--port", "" + port));
        words.addAll(List.of("--save", "", "--dir", folder.toString()));
        words.addAll(List.of(options));
        return start(port, words, folder);
    }

    /** A ZooKeeper that runs alone, from the libraries of this program. */
    static OwnServer zookeeper() throws IOException, InterruptedException {
        int port = freePort();
        Path folder = Files.createTempDirectory("tether-bench-");
        List<String> words = java();
        words.addAll(
                List.of(
                        "-Dzookeeper.admin.enableServer=false",
                        "org.apache.zookeeper.server.ZooKeeperServerMain",
                        "" + port,
                        folder.toString()));
        return start(port, words, folder);
    }

    /** A program with the libraries of this one. */
    static List<String> java() {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        return new ArrayList<>(
                List.of(
                        java,
                        "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
                        "-cp",
                        System.getProperty("java.class.path")));
    }

    static String needed(String name) {
        String value = System.getenv(name);
        if (value == null || value.isEmpty()) {
            throw new IllegalStateException(name + " is not set: see scripts/java.sh");
        }
        return value;
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    private static OwnServer start(int port, List<String> words, Path folder)
            throws IOException, InterruptedException {
        File log = folder.resolve("log").toFile();
        Process process =
                new ProcessBuilder(words).redirectErrorStream(true).redirectOutput(log).start();
        Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
        long until = System.nanoTime() + START_WITHIN_NS;
        while (true) {
            try (Socket socket = new Socket()) {
                socket.connect(new InetSocketAddress("127.0.0.1", port));
                return new OwnServer(port, process, folder);
            } catch (IOException notYet) {
                if (!process.isAlive() || System.nanoTime() > until) {
                    throw new IOException("it does not start: " + words + ", " + log, notYet);
                }
                Thread.sleep(20);
            }
        }
    }

    /** The time that its threads have had of a processor, in seconds. Linux only. */
    double cpu() {
        try {
            String line = Files.readString(Path.of("/proc/" + process.pid() + "/stat"));
            String[] fields = line.substring(line.lastIndexOf(')') + 2).split(" ");
            return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / TICKS_PER_SECOND;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public void close() throws IOException, InterruptedException {
        process.destroyForcibly().waitFor();
        try (Stream<Path> files = Files.walk(folder)) {
            for (Path each : files.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(each);
            }
        }
    }
}
