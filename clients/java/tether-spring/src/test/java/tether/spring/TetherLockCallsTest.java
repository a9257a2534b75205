package tether.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.aop.framework.ProxyFactory;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.core.NestedExceptionUtils;
import tether.locks.Hold;
import tether.locks.TestServer;
import tether.locks.TetherLocks;

/** Which calls of a proxy take the lock, and what comes of it if they do not get it. */
@Timeout(300)
class TetherLockCallsTest {
    private static TestServer server;
    private static TetherLocks locks;

    @BeforeAll
    static void start() throws IOException {
        server = TestServer.start();
        locks = TetherLocks.builder(server.uri()).build();
    }

    @AfterAll
    static void stop() {
        locks.close();
        server.close();
    }

    private static Object proxy(Object target, boolean isOfClass) {
        ProxyFactory proxies = new ProxyFactory(target);
        proxies.setProxyTargetClass(isOfClass);
        proxies.addAdvisor(
                new DefaultPointcutAdvisor(
                        new TetherLockPointcut(), new TetherLockInterceptor(() -> locks)));
        return proxies.getProxy();
    }

    /** Gives what its lock's key has: holders and waiters. */
    interface Work<T> {
        T work() throws Exception;
    }

    static class OfClass implements Work<List<Integer>> {
        @Override
        @TetherLock(name = "calls")
        public List<Integer> work() {
            return server.crowd("calls");
        }
    }

    static class OfSuperclass extends OfClass {
        @Override
        public List<Integer> work() {
            return server.crowd("calls");
        }
    }

    interface Annotated extends Work<List<Integer>> {
        @Override
        @TetherLock(name = "calls")
        List<Integer> work();
    }

    static class OfInterface implements Annotated {
        @Override
        public List<Integer> work() {
            return server.crowd("calls");
        }
    }

    interface AnnotatedAnything<T> extends Work<T> {
        @Override
        @TetherLock(name = "calls")
        T work();
    }

    static class OfGenericInterface implements AnnotatedAnything<List<Integer>> {
        @Override
        public List<Integer> work() {
            return server.crowd("calls");
        }
    }

    interface AnnotatedDefault extends Work<List<Integer>> {
        @Override
        @TetherLock(name = "calls")
        default List<Integer> work() {
            return server.crowd("calls");
        }
    }

    static class OfDefault implements AnnotatedDefault {}

    static Stream<Work<List<Integer>>> annotated() {
        return Stream.of(
                new OfClass(),
                new OfSuperclass(),
                new OfInterface(),
                new OfGenericInterface(),
                new OfDefault());
    }

    @ParameterizedTest
    @MethodSource("annotated")
    void aMethodIsLockedWhereverItsAnnotationStands(Work<List<Integer>> target) throws Exception {
        for (boolean isOfClass : List.of(true, false)) {
            Work<?> proxy = (Work<?>) proxy(target, isOfClass);
            assertEquals(List.of(1, 0), proxy.work(), isOfClass ? "class" : "interface");
            assertEquals(List.of(0, 0), server.crowd("calls"));
        }
    }

    static class ReturnsEarly implements AnnotatedAnything<CompletableFuture<Void>> {
        @Override
        public CompletableFuture<Void> work() {
            return new CompletableFuture<>();
        }
    }

    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void soIsItRefusedIfItReturnsEarly(boolean isOfClass) {
        RuntimeException refused =
                assertThrows(
                        RuntimeException.class,
                        () -> ((Work<?>) proxy(new ReturnsEarly(), isOfClass)).work());
        Throwable why = NestedExceptionUtils.getMostSpecificCause(refused);
        assertTrue(why.getMessage().contains("work()"), why.getMessage());
    }

    static class Waits {
        private boolean hasRun;

        @TetherLock(name = "waits")
        public void silently() {}

        @TetherLock(name = "waits")
        public void openly() throws InterruptedException {
            hasRun = true;
            throw new InterruptedException("of the work");
        }

        @TetherLock(name = "waits")
        public void generously() throws Exception {}
    }

    private interface Call {
        void of(Waits waits) throws Exception;
    }

    /** What it throws where it is interrupted as it waits, and whether the thread still is then. */
    private static Exception interrupted(Call call, boolean isStillInterrupted) throws Exception {
        Waits waits = (Waits) proxy(new Waits(), true);
        Callable<Exception> caught =
                () -> {
                    Exception thrown = assertThrows(Exception.class, () -> call.of(waits));
                    assertEquals(isStillInterrupted, Thread.interrupted(), thrown.toString());
                    return thrown;
                };
        CompletableFuture<Exception> thrown = new CompletableFuture<>();
        try (Hold hold = locks.lock("waits").acquire()) {
            Thread thread =
                    new Thread(
                            () -> {
                                try {
                                    thrown.complete(caught.call());
                                } catch (Exception | AssertionError error) {
                                    thrown.completeExceptionally(error);
                                }
                            });
            thread.start();
            server.awaitCrowd("waits", 1, 1);
            thread.interrupt();
            Exception result = thrown.get();
            server.awaitCrowd("waits", 1, 0);
            assertTrue(hold.isHeld());
            return result;
        }
    }

    @Test
    void anInterruptedWaitThrowsWhatTheMethodDeclares() throws Exception {
        assertInstanceOf(InterruptedException.class, interrupted(Waits::openly, false));
        assertInstanceOf(InterruptedException.class, interrupted(Waits::generously, false));
        Exception unchecked = interrupted(Waits::silently, true);
        assertInstanceOf(LockInterruptedException.class, unchecked);
        assertInstanceOf(InterruptedException.class, unchecked.getCause());
    }

    @Test
    void theInterruptOfTheWorkIsItsOwn() {
        Waits target = new Waits();
        Waits waits = (Waits) proxy(target, true);
        assertEquals(
                "of the work",
                assertThrows(InterruptedException.class, waits::openly).getMessage());
        assertTrue(target.hasRun);
        assertFalse(Thread.interrupted());
    }
}
