package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** What no vector says. */
class CoreTest {
    private static Core connected(boolean isUnix) {
        Settings settings = new Settings(null, 0, null, false, Settings.BootClock.EXACT, () -> 0);
        Core core = new Core(new Stamp(0, 0), settings);
        connect(core, isUnix);
        return core;
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
}
