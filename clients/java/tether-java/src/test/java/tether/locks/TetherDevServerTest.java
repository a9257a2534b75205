package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** As a user's test has it. */
@Timeout(300)
class TetherDevServerTest {
    private static String lossBy(TetherDevServer server, Hold hold, String... words)
            throws Exception {
        CompletableFuture<String> lost = new CompletableFuture<>();
        hold.onLost(lost::complete);
        server.dev(words);
        return lost.get(60, TimeUnit.SECONDS);
    }

    @Test
    void leversBringAboutLosses() throws Exception {
        try (TetherDevServer server = TetherDevServer.start();
                TetherLocks locks = TetherLocks.builder(server.uri()).build()) {
            assertEquals("deleted", lossBy(server, locks.lock("a").acquire(), "LOSE", "a"));
            assertEquals("connection", lossBy(server, locks.lock("b").acquire(), "DROP"));
            Hold leased = locks.lock("c").lease(Duration.ofHours(1)).acquire();
            CompletableFuture<String> lost = new CompletableFuture<>();
            leased.onLost(lost::complete);
            server.advance(Duration.ofHours(2));
            assertEquals("lease", lost.get(60, TimeUnit.SECONDS));
            server.dev("REFUSE", "NOREPLICAS");
            TetherException refused =
                    assertThrows(
                            TetherException.class,
                            () -> locks.lock("d").waitAtMost(Duration.ofMillis(50)).acquire());
            assertEquals("NOREPLICAS", refused.code());
            server.dev("ACCEPT");
            locks.lock("d").acquire().close();
        }
    }

    @Test
    void theFenceEndsAHoldOfASilentServer() throws Exception {
        try (TetherDevServer server = TetherDevServer.start("--peer-timeout", "2s");
                TetherLocks locks = TetherLocks.builder(server.uri()).build()) {
            Hold hold = locks.lock("a").acquire();
            assertEquals("silence", lossBy(server, hold, "SILENT", "60000"));
        }
    }

    @Test
    void itEndsWhenItIsClosed() throws IOException {
        TetherDevServer server = TetherDevServer.start();
        assertInstanceOf(List.class, server.dev("HELP"));
        assertThrows(IllegalArgumentException.class, () -> server.dev("NONSENSE"));
        server.close();
        assertThrows(IOException.class, () -> new Socket("127.0.0.1", server.port()).close());
        assertThrows(IOException.class, () -> TetherDevServer.start("--no-such-option"));
        assertTrue(server.uri().endsWith(":" + server.port()));
    }

    @Test
    void aProgramThatIsNotThereIsAskedFor() {
        IOException error =
                assertThrows(
                        IOException.class,
                        () -> TetherDevServer.start("/there/is/none", Duration.ofSeconds(10)));
        assertTrue(error.getMessage().contains("TETHER_PROGRAM"), error.getMessage());
    }

    /** Nor is its child, which keeps the pipe open. */
    @Test
    @Timeout(15)
    void aProgramThatSaysNothingIsNotWaitedFor(@TempDir Path folder) throws IOException {
        Path silent = Files.writeString(folder.resolve("silent"), "#!/bin/sh\nsleep 20\nexit\n");
        assertTrue(silent.toFile().setExecutable(true));
        IOException error =
                assertThrows(
                        IOException.class,
                        () -> TetherDevServer.start(silent.toString(), Duration.ofMillis(500)));
        assertTrue(error.getMessage().contains(silent + ", devserver"), error.getMessage());
        assertTrue(error.getMessage().endsWith("said nothing for 500 ms"), error.getMessage());
    }

    /** As a framework does that stops what it has started when the JVM ends. */
    @Test
    void itIsClosedAsTheProgramEnds() throws Exception {
        Process process =
                new ProcessBuilder(
                                Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                                "-cp",
                                System.getProperty("java.class.path"),
                                ClosingAtExit.class.getName())
                        .redirectErrorStream(true)
                        .start();
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals("closed", said.strip());
        assertEquals(0, process.waitFor());
    }
}
