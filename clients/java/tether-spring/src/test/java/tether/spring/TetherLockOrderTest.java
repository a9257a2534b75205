package tether.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.TransactionDefinition;
import org.springframework.transaction.annotation.EnableTransactionManagement;
import org.springframework.transaction.annotation.Transactional;
import org.springframework.transaction.support.AbstractPlatformTransactionManager;
import org.springframework.transaction.support.DefaultTransactionStatus;
import tether.locks.TestServer;

/** What a transaction changes is committed before another has the lock. */
@Timeout(300)
class TetherLockOrderTest {
    private static TestServer server;
    private static final List<String> STEPS = new ArrayList<>();

    private static void step(String what) {
        STEPS.add(what + " " + server.crowd("order"));
    }

    @SpringBootConfiguration
    @EnableAutoConfiguration
    @EnableTransactionManagement
    static class Application {
        @Bean
        Orders orders() {
            return new Orders();
        }

        @Bean
        PlatformTransactionManager transactions() {
            return new Recorded();
        }
    }

    static class Orders {
        @Transactional
        @TetherLock(name = "order")
        public void ship() {
            step("ship");
        }
    }

    private static final class Recorded extends AbstractPlatformTransactionManager {
        private static final long serialVersionUID = 1;

        @Override
        protected Object doGetTransaction() {
            return new Object();
        }

        @Override
        protected void doBegin(Object transaction, TransactionDefinition definition) {
            step("begin");
        }

        @Override
        protected void doCommit(DefaultTransactionStatus status) {
            step("commit");
        }

        @Override
        protected void doRollback(DefaultTransactionStatus status) {
            step("rollback");
        }
    }

    @Test
    void theLockIsAroundTheTransaction() throws Exception {
        server = TestServer.start();
        try (ConfigurableApplicationContext application =
                new SpringApplicationBuilder(Application.class)
                        .web(WebApplicationType.NONE)
                        .properties(
                                "spring.data.redis.host=127.0.0.1",
                                "spring.data.redis.port=" + server.port,
                                "spring.main.banner-mode=off")
                        .run()) {
            application.getBean(Orders.class).ship();
            assertEquals(List.of("begin [1, 0]", "ship [1, 0]", "commit [1, 0]"), STEPS);
            assertEquals(List.of(0, 0), server.crowd("order"));
        } finally {
            server.close();
        }
    }
}
