package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class GreeterTest {
    private static final double WITHIN = 6000;

    @Test
    void severalAddressesShareTheTime() throws Exception {
        try (TestServer server = TestServer.start();
                ServerSocket silent = new ServerSocket(0, 9, InetAddress.getByName("127.0.0.1"))) {
            Address first = Address.of("redis://127.0.0.1:" + silent.getLocalPort());
            Address second = Address.of(server.uri());
            Greeter greeter = new Greeter("test", null, true);
            long began = System.nanoTime();
            Greeter.Greeted greeted = greeter.greet(List.of(first, second), WITHIN);
            greeted.wire().close();
            assertEquals(second, greeted.address());
            assertTrue(System.nanoTime() - began < WITHIN * 1e6, "the first had all of the time");
        }
    }
}
