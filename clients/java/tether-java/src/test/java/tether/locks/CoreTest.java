package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** What no vector says. */
class CoreTest {
    private static Core connected(boolean isUnix) {
        Core core = core(null);
        connect(core, isUnix);
        return core;
    }

    private static Core core(Double grace) {
        return new Core(
                new Stamp(0, 0),
                new Settings(grace, 0, null, false, Settings.BootClock.EXACT, () -> 0));
    }

    private static void connect(Core core, boolean isUnix) {
        core.open();
        core.link.connected(isUnix);
        core.link.received(Map.of("role", "master", "pushes", 1L, "peer-timeout-ms", 8000L));
    }

    /** P-LOSS-5: whoever is told of the grant needs the request, which is over by then. */
    @Test
    void aGrantThatIsLostAtOnceIsOfItsRequest() {
        Core core = connected(false);
        core.acquire("a", new Ask(List.of("k")));
        Request request = core.requests.find("a");
        core.link.received(new Push(List.of("lock", "k", "LOST deleted .1")));
        core.link.received(7L);
        assertEquals(
                List.of(new Event.Granted("a", 7, null, request), new Event.Lost("a", "deleted")),
                core.take().events());
    }

    /** P-FENCE-1: with Sentinels or several servers, not each need be on a Unix socket. */
    @Test
    void theFenceIsThatOfTheConnection() {
        Core core = connected(true);
        assertEquals(5000, core.link.fence.length());
        core.link.broke();
        connect(core, false);
        assertEquals(4000, core.link.fence.length());
    }

    /** P-CLUSTER-6: where a session is resumed. */
    @Test
    void theSlotOfASessionIsThatOfItsHoldsFirst() {
        Core core = core(9000.0);
        connect(core, false);
        answer(core, "secret");
        assertEquals(Slot.NONE, core.slot());
        core.presences.watch("presence", "{p}", false, Map.of());
        assertEquals(Slot.of("{p}"), core.slot());
        core.watches.watch("watch", List.of("w"));
        assertEquals(Slot.of("w"), core.slot());
        Ask asking = new Ask(List.of("asked"));
        asking.isAsking = true; // Its slot is another server's.
        core.acquire("asked", asking);
        assertEquals(Slot.of("w"), core.slot());
        core.acquire("waits", new Ask(List.of("waits")));
        assertEquals(Slot.of("waits"), core.slot());
        core.acquire("held", new Ask(List.of("held")));
        answer(core, List.of("", List.of()), "MISSING", "OK", 7L, null, 8L);
        assertEquals(Slot.of("held"), core.slot());
    }

    /** P-CLUSTER-4: its slot is on its way to this server. */
    @Test
    void whatCameByAskIsReleasedSoWhenTheClientIsClosed() {
        Core core = core(9000.0);
        connect(core, false);
        Ask kept = new Ask(List.of("k"));
        kept.atLeast = 5000;
        core.acquire("kept", kept);
        answer(core, "secret", 7L);
        core.release("kept");
        Ask asking = new Ask(List.of("l"));
        asking.isAsking = true;
        core.acquire("asked", asking);
        answer(core, 1L, "OK", 8L);
        core.take();
        core.close();
        assertEquals(
                List.of(
                        List.of("ASKING"),
                        List.of("LOCK.RELEASE", "l", "OWNER", ".2", "ALL"),
                        List.of("SESSION.DETACH")),
                core.take().sent());
    }

    // ---- what the server is asked about a hold, call by call (P-GUARD-2) ----

    private static final List<String> CHECK = List.of("LOCK.CHECK", "k", "7");

    /** Two calls of one owner, of which one asks twice; nothing is answered yet. */
    private static Core asked(Double grace) {
        Core core = core(grace);
        connect(core, false);
        if (grace != null) {
            core.link.received("secret");
        }
        Ask ask = new Ask(List.of("k"));
        ask.owner = "me";
        ask.isReentrant = true;
        core.acquire("a", ask);
        core.link.received(7L);
        core.acquire("b", ask);
        core.take();
        for (String id : List.of("a", "b", "b")) {
            core.requests.checkServer(id);
        }
        assertEquals(List.of(CHECK, CHECK, CHECK), core.take().sent());
        return core;
    }

    private static List<Event> checked(Problem problem) {
        return List.of(
                new Event.Checked("a", problem),
                new Event.Checked("b", problem),
                new Event.Checked("b", problem));
    }

    private static void answer(Core core, Object... replies) {
        for (Object reply : replies) {
            core.link.received(reply);
        }
    }

    @Test
    void eachCallIsToldWhatItsCheckGave() {
        Core core = asked(null);
        ServerError busy = new ServerError("BUSY not now");
        answer(core, 1L, busy, 1L);
        assertEquals(
                List.of(
                        new Event.Checked("a", null),
                        new Event.Checked("b", Problem.refused(busy)),
                        new Event.Checked("b", null)),
                core.take().events());
    }

    @Test
    void eachCallIsToldOnceThatTheHoldIsLost() {
        Core core = asked(null);
        answer(core, new Push(List.of("lock", "k", "LOST deleted me")), 1L, 1L, 1L);
        List<Event> told =
                new ArrayList<>(
                        List.of(new Event.Lost("a", "deleted"), new Event.Lost("b", "deleted")));
        told.addAll(checked(Problem.LOST));
        assertEquals(told, core.take().events());
    }

    @Test
    void eachCallIsToldOnceThatTheConnectionIsLost() {
        Core core = asked(null);
        core.link.broke();
        List<Event> told =
                new ArrayList<>(
                        List.of(
                                new Event.Lost("a", "connection"),
                                new Event.Lost("b", "connection")));
        told.addAll(checked(Problem.LOST));
        assertEquals(told, core.take().events());
    }

    @Test
    void eachCallAsksAgainAfterABreak() {
        Core core = asked(9000.0);
        answer(core, 1L);
        assertEquals(List.of(new Event.Checked("a", null)), core.take().events());
        core.link.broke();
        core.requests.checkServer("a");
        core.link.connected(false);
        Map<String, Object> hold =
                Map.of("kind", "lock", "key", "k", "label", "me", "token", 7L, "state", "held");
        answer(core, "OK");
        assertEquals(List.of(), core.take().events());
        answer(core, List.of("0", List.of(hold)));
        assertEquals(List.of(CHECK, CHECK, CHECK), core.take().sent());
        answer(core, 1L, 1L, 1L);
        assertEquals(
                List.of(
                        new Event.Checked("b", null),
                        new Event.Checked("b", null),
                        new Event.Checked("a", null)),
                core.take().events());
    }
}
