package tether.locks;

import java.io.IOException;

/** A program that closes a devserver in one of its last threads, and says so. */
final class ClosingAtExit {
    private ClosingAtExit() {}

    public static void main(String[] words) throws IOException {
        TetherDevServer server = TetherDevServer.start();
        Runtime.getRuntime()
                .addShutdownHook(
                        new Thread(
                                () -> {
                                    server.close();
                                    System.out.println("closed");
                                }));
    }
}
