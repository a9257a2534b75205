package tether.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SubmissionPublisher;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.aop.Advisor;
import org.springframework.aop.framework.ProxyFactory;
import org.springframework.beans.factory.BeanCreationException;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.support.GenericApplicationContext;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import tether.locks.TestServer;
import tether.locks.TetherObserver;

/** A method whose work goes on after it has returned would be guarded by nothing. */
@Timeout(300)
class TetherLockReturnsTest {
    private static final BlockingQueue<String> GRANTED = new LinkedBlockingQueue<>();
    private static TestServer server;

    @BeforeAll
    static void start() throws IOException {
        server = TestServer.start();
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    @SpringBootConfiguration
    @EnableAutoConfiguration
    static class Application {
        @Bean
        TetherObserver grants() {
            return new TetherObserver() {
                @Override
                public void granted(List<String> keys, long token, Duration waited) {
                    GRANTED.addAll(keys);
                }
            };
        }
    }

    private static ConfigurableApplicationContext applicationWith(Class<?> bean) {
        return new SpringApplicationBuilder(Application.class)
                .web(WebApplicationType.NONE)
                .properties(
                        "spring.data.redis.host=127.0.0.1",
                        "spring.data.redis.port=" + server.port,
                        "spring.main.banner-mode=off")
                .initializers(context -> ((GenericApplicationContext) context).registerBean(bean))
                .run();
    }

    interface Work<T> {
        T work();
    }

    static class Returns implements Work<List<Integer>> {
        @Override
        @TetherLock(name = "done")
        public List<Integer> work() {
            return server.crowd("done");
        }
    }

    static class ReturnsCompletableFuture extends Returns {
        @TetherLock(name = "work")
        public CompletableFuture<Void> later() {
            return new CompletableFuture<>();
        }
    }

    static class ReturnsFuture {
        @TetherLock(name = "work")
        public Future<Void> later() {
            return new CompletableFuture<>();
        }
    }

    static class ReturnsStage {
        @TetherLock(name = "work")
        public CompletionStage<Void> later() {
            return new CompletableFuture<>();
        }
    }

    static class ReturnsMono {
        @TetherLock(name = "work")
        public Mono<Void> later() {
            return Mono.never();
        }
    }

    static class ReturnsFlux {
        @TetherLock(name = "work")
        public Flux<Void> later() {
            return Flux.never();
        }
    }

    static class ReturnsPublisher {
        @TetherLock(name = "work")
        public Flow.Publisher<Void> later() {
            return new SubmissionPublisher<>();
        }
    }

    abstract static class ReturnsAnything<T> {
        @TetherLock(name = "work")
        public T later() {
            return null;
        }
    }

    static class ReturnsAnythingLater extends ReturnsAnything<CompletableFuture<Void>> {}

    @ParameterizedTest
    @ValueSource(
            classes = {
                ReturnsCompletableFuture.class,
                ReturnsFuture.class,
                ReturnsStage.class,
                ReturnsMono.class,
                ReturnsFlux.class,
                ReturnsPublisher.class,
                ReturnsAnythingLater.class
            })
    void aMethodThatReturnsBeforeItsWorkIsDoneIsRefusedAtTheStart(Class<?> bean) {
        BeanCreationException refused =
                assertThrows(
                        BeanCreationException.class,
                        () -> applicationWith(bean).close(),
                        "it starts");
        assertNames("later", refused.getMostSpecificCause());
    }

    private static void assertNames(String method, Throwable refused) {
        assertEquals(IllegalStateException.class, refused.getClass());
        assertTrue(refused.getMessage().contains("." + method + "()"), refused.getMessage());
    }

    static class WorksLater implements Work<CompletableFuture<Void>> {
        @Override
        @TetherLock(name = "work")
        public CompletableFuture<Void> work() {
            return new CompletableFuture<>();
        }
    }

    /** Spring looks at the methods of an interface's proxy when they are called. */
    @Test
    void orWhenItIsCalled() throws InterruptedException {
        try (ConfigurableApplicationContext application = applicationWith(Returns.class)) {
            ProxyFactory proxies = new ProxyFactory(new WorksLater());
            proxies.addAdvisor(application.getBean("tetherLockAdvisor", Advisor.class));
            Work<?> proxy = (Work<?>) proxies.getProxy();
            assertNames("work", assertThrows(IllegalStateException.class, proxy::work));
            assertEquals(List.of(1, 0), application.getBean(Returns.class).work());
            assertEquals("done", GRANTED.poll(60, TimeUnit.SECONDS), "the first grant");
        }
    }
}
