package tether.example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.SpringBootVersion;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import tether.locks.LostException;
import tether.locks.TestServer;
import tether.locks.TetherLocks;

/** An application of Spring Boot 3.5, whose instances share locks by {@code asLock}. */
@Timeout(300)
class OrdersTest {
    @SpringBootConfiguration
    @EnableAutoConfiguration
    static class Application {
        @Bean(destroyMethod = "close")
        TetherLocks tetherLocks(@Value("${spring.data.redis.url}") String url) {
            return TetherLocks.builder(url).build();
        }

        @Bean
        Orders orders(TetherLocks locks) {
            return new Orders(locks);
        }
    }

    /** Of each order, one thing is done at a time, in all instances. */
    static class Orders {
        private final TetherLocks locks;

        Orders(TetherLocks locks) {
            this.locks = locks;
        }

        boolean ship(int id, Runnable work) throws InterruptedException {
            Lock lock = locks.asLock("order:" + id);
            if (!lock.tryLock(20, TimeUnit.SECONDS)) {
                return false;
            }
            try {
                work.run();
                return true;
            } finally {
                lock.unlock(); // throws LostException if the work was not protected to its end
            }
        }
    }

    private static ConfigurableApplicationContext instance(TestServer server) {
        return new SpringApplicationBuilder(Application.class)
                .web(WebApplicationType.NONE)
                .properties("spring.data.redis.url=" + server.uri(), "spring.main.banner-mode=off")
                .run();
    }

    @Test
    void instancesTakeTurns() throws Exception {
        assertTrue(SpringBootVersion.getVersion().startsWith("3.5."));
        ExecutorService threads = Executors.newFixedThreadPool(4);
        try (TestServer server = TestServer.start();
                ConfigurableApplicationContext one = instance(server);
                ConfigurableApplicationContext two = instance(server)) {
            int[] shipped = new int[1]; // Which is guarded by the lock only.
            List<Future<Boolean>> all = new ArrayList<>();
            for (int count = 0; count < 40; count++) {
                Orders orders = (count % 2 == 0 ? one : two).getBean(Orders.class);
                all.add(threads.submit(() -> orders.ship(7, () -> shipped[0]++)));
            }
            for (Future<Boolean> each : all) {
                assertTrue(each.get());
            }
            assertEquals(40, shipped[0]);
            assertThrows(
                    LostException.class,
                    () -> one.getBean(Orders.class).ship(8, () -> server.ask("DEL", "order:8")));
        } finally {
            threads.shutdown();
        }
    }
}
