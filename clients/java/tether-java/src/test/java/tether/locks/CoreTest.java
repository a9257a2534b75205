package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** What no vector says. */
class CoreTest {
    private final Core core;

    CoreTest() {
        Settings settings =
                new Settings(9000.0, 0, null, false, true, Settings.BootClock.EXACT, () -> 0);
        core = new Core(new Stamp(0, 0), settings);
        core.open();
        core.link.connected();
        core.link.received(Map.of("role", "master", "pushes", 1L, "peer-timeout-ms", 8000L));
        core.link.received("secret");
        core.take();
    }

    private static Ask ask() {
        return new Ask(List.of("k"));
    }

    /** P-REL-8: only a hold goes on at another node. To resume the session would never end. */
    @Test
    void aRequestThatWasGivenUpIsSettledByMoved() {
        core.acquire("a", ask());
        core.link.received(null);
        core.giveUp("a");
        core.take();
        core.link.received(new ServerError("MOVED 1 127.0.0.1:2"));
        Core.Output output = core.take();
        assertEquals(List.of(new Event.Over("a")), output.events());
        assertEquals(List.of(), output.orders());
        assertEquals(List.of(), core.requests.list());
    }
}
