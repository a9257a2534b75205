package tether.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.boot.health.contributor.HealthIndicator;
import org.springframework.context.ApplicationListener;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.integration.leader.event.AbstractLeaderEvent;
import org.springframework.integration.support.locks.DistributedLock;
import tether.locks.Hold;
import tether.locks.LostException;
import tether.locks.TakenException;
import tether.locks.TestServer;
import tether.locks.TetherLocks;

/** An application of Spring Boot on a real server. */
@Timeout(300)
class TetherAutoConfigurationTest {
    private static final BlockingQueue<String> TERMS = new LinkedBlockingQueue<>();
    private static TestServer server;
    private static ConfigurableApplicationContext application;

    @BeforeAll
    static void start() throws IOException {
        server = TestServer.start("--requirepass", "secret:/@");
        application = application();
    }

    @AfterAll
    static void stop() {
        application.close();
        server.close();
    }

    private static ConfigurableApplicationContext application(String... more) {
        return new SpringApplicationBuilder(Application.class)
                .web(WebApplicationType.NONE)
                .properties(
                        "spring.data.redis.host=127.0.0.1",
                        "spring.data.redis.port=" + server.port,
                        "spring.data.redis.password=secret:/@",
                        "spring.main.banner-mode=off",
                        "tether.name=tether:test:1:spring",
                        "tether.grace=1m")
                .properties(more)
                .run();
    }

    /** As an application has them. */
    @SpringBootConfiguration
    @EnableAutoConfiguration
    static class Application {
        @Bean
        Orders orders() {
            return new Orders();
        }

        @Bean
        ApplicationListener<AbstractLeaderEvent> terms() {
            return event ->
                    TERMS.add(
                            event.getClass().getSimpleName()
                                    + " "
                                    + event.getRole()
                                    + " "
                                    + event.getContext().isLeader());
        }

        @Bean
        MeterRegistry meters() {
            return new SimpleMeterRegistry();
        }
    }

    static class Orders {
        static final AtomicInteger INSIDE = new AtomicInteger();

        @TetherLock(name = "order:#{#id}", waitAtMost = "0s")
        public List<Integer> ship(int id) {
            return server.crowd("order:" + id);
        }

        @TetherLock(name = "lost")
        public String lose() {
            server.ask("DEL", "lost");
            return "done";
        }

        @TetherLock(name = "job", lease = "1m")
        public int job() {
            int others = INSIDE.getAndIncrement();
            Thread.yield();
            INSIDE.decrementAndGet();
            return others;
        }
    }

    @Test
    void aMethodRunsUnderItsLock() throws InterruptedException {
        Orders orders = application.getBean(Orders.class);
        assertEquals(List.of(1, 0), orders.ship(7));
        assertEquals(List.of(0, 0), server.crowd("order:7"));
        try (Hold hold = application.getBean(TetherLocks.class).lock("order:8").acquire()) {
            assertThrows(TakenException.class, () -> orders.ship(8));
            assertTrue(hold.isHeld());
        }
        assertThrows(LostException.class, orders::lose);
    }

    @Test
    void theRegistryHasLocks() throws Exception {
        TetherLockRegistry registry = application.getBean(TetherLockRegistry.class);
        DistributedLock lock = registry.obtain("x");
        lock.lock();
        assertTrue(registry.obtain("x").tryLock());
        assertEquals(List.of(1, 0), server.crowd("spring:x"));
        ExecutorService other = Executors.newSingleThreadExecutor();
        assertFalse(other.submit(() -> registry.obtain("x").tryLock()).get());
        other.shutdown();
        lock.unlock();
        lock.unlock();
        assertEquals(List.of(0, 0), server.crowd("spring:x"));
        assertTrue(lock.tryLock(Duration.ZERO, Duration.ofMillis(50)));
        TestServer.eventually(
                "its lease is over", () -> server.crowd("spring:x").equals(List.of(0, 0)));
        assertThrows(LostException.class, lock::unlock);
        registry.executeLocked("x", () -> assertEquals(List.of(1, 0), server.crowd("spring:x")));
    }

    @Test
    void healthAndMetersAreThere() throws InterruptedException {
        TetherLocks locks = application.getBean(TetherLocks.class);
        locks.lock("metered").acquire().close();
        HealthIndicator health =
                application.getBean("tetherHealthIndicator", HealthIndicator.class);
        TestServer.eventually("it is up", () -> health.health().getStatus().getCode().equals("UP"));
        MeterRegistry meters = application.getBean(MeterRegistry.class);
        TestServer.eventually(
                "a grant is metered", () -> meters.find("tether.wait").timer() != null);
    }

    @Test
    void aCandidateHasEvents() throws Exception {
        String granted = "OnGrantedEvent scheduler true";
        try (ConfigurableApplicationContext one =
                        application("tether.leader.role=scheduler", "tether.leader.id=one");
                ConfigurableApplicationContext two =
                        application("tether.leader.role=scheduler", "tether.leader.id=two")) {
            assertEquals(granted, TERMS.poll(60, TimeUnit.SECONDS));
            server.awaitCrowd("leader:scheduler", 1, 1);
            assertEquals("one", server.ask("GET", "leader:scheduler"));
            server.ask("DEL", "leader:scheduler");
            List<String> both =
                    List.of(TERMS.poll(60, TimeUnit.SECONDS), TERMS.poll(60, TimeUnit.SECONDS));
            assertTrue(both.contains(granted), both.toString());
            assertTrue(both.contains("OnRevokedEvent scheduler false"), both.toString());
            server.awaitCrowd("leader:scheduler", 1, 1);
            assertEquals("two", server.ask("GET", "leader:scheduler"));
            two.getBean(TetherLeaderInitiator.class).stop();
            assertEquals("OnRevokedEvent scheduler true", TERMS.poll(60, TimeUnit.SECONDS));
            assertEquals(granted, TERMS.poll(60, TimeUnit.SECONDS));
            one.getBean(TetherLeaderInitiator.class).stop();
            assertEquals("OnRevokedEvent scheduler true", TERMS.poll(60, TimeUnit.SECONDS));
            server.awaitCrowd("leader:scheduler", 0, 0);
        }
        assertEquals(List.of(), List.copyOf(TERMS));
    }

    @Test
    void ofThreeInstancesOneWorksAtATime() throws Exception {
        List<ConfigurableApplicationContext> instances = new ArrayList<>();
        ExecutorService threads = Executors.newCachedThreadPool();
        try {
            List<Future<Integer>> together = new ArrayList<>();
            for (int count = 0; count < 3; count++) {
                instances.add(application());
                Orders orders = instances.get(count).getBean(Orders.class);
                for (int job = 0; job < 20; job++) {
                    together.add(threads.submit(orders::job));
                }
            }
            for (Future<Integer> others : together) {
                assertEquals(0, others.get());
            }
        } finally {
            threads.shutdown();
            instances.forEach(ConfigurableApplicationContext::close);
        }
    }
}
