package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.junit.jupiter.api.Test;

/**
 * P-OWNER-4, of a task: to the server it has what was not released yet, and would wait for itself.
 */
class TaskTest {
    private final Core core = Cores.withSession(false);

    private void acquire(String id, String task, Double wait, double atLeast) {
        Ask ask = new Ask(List.of("k"));
        ask.task = task;
        ask.wait = wait;
        ask.atLeast = atLeast;
        core.acquire(id, ask);
    }

    private void assertSent(String... commands) {
        assertEquals(
                List.of(commands), core.take().sent().stream().map(words -> words.get(0)).toList());
    }

    @Test
    void itAsksAgainOnceItsRefusedReleaseIsAccepted() {
        acquire("a", "t", null, 0);
        core.link.received(8L);
        core.release("a");
        core.link.received(new ServerError("BUSY no"));
        assertSent("LOCK.ACQUIRE", "LOCK.RELEASE");
        acquire("b", "t", null, 0);
        acquire("c", "t", 0.0, 0);
        Core.Output output = core.take();
        assertEquals(List.of(), output.sent());
        assertEquals(List.of(new Event.Refused("c", Problem.TAKEN)), output.events());
        acquire("d", "other", 0.0, 0);
        assertSent("LOCK.ACQUIRE");
        core.link.received(null);
        core.tick(new Stamp(20, 20));
        assertSent("LOCK.RELEASE");
        core.link.received(0L);
        assertSent("LOCK.ACQUIRE");
    }

    @Test
    void whatOvertookARefusedReleaseIsSentAgain() {
        acquire("a", "t", null, 0);
        core.link.received(8L);
        core.release("a");
        acquire("b", "t", null, 0);
        assertSent("LOCK.ACQUIRE", "LOCK.RELEASE", "LOCK.ACQUIRE");
        core.link.received(new ServerError("BUSY no"));
        core.link.received(new ServerError("DEADLOCK a task waits for itself"));
        core.tick(new Stamp(20, 20));
        core.link.received(0L);
        assertSent("LOCK.RELEASE", "LOCK.ACQUIRE");
    }

    @Test
    void itWaitsForWhatItHasLeftToBeKept() {
        acquire("a", "t", null, 1000);
        core.link.received(8L);
        core.release("a");
        core.link.received(1L);
        assertSent("LOCK.ACQUIRE", "LOCK.EXTEND");
        acquire("b", "t", null, 0);
        assertSent();
        core.tick(new Stamp(1000, 1000));
        assertSent("LOCK.ACQUIRE");
    }
}
