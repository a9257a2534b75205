package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** What no vector says. */
class CoreTest {
    private final Core core = Cores.withSession(true);

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

    /** P-LOSS-5: whoever is told of the grant needs the request, which is over by then. */
    @Test
    void aGrantThatIsLostAtOnceIsOfItsRequest() {
        core.acquire("a", ask());
        Request request = core.requests.find("a");
        core.link.received(new Push(List.of("lock", "k", "LOST deleted .1")));
        core.link.received(7L);
        assertEquals(
                List.of(new Event.Granted("a", 7, null, request), new Event.Lost("a", "deleted")),
                core.take().events());
    }

    /** The loss was of a grant that LOCK.MINE does not list. */
    @Test
    void aLossBeforeABreakIsNotOfTheNextGrant() {
        core.acquire("a", ask());
        Request request = core.requests.find("a");
        core.link.received(new Push(List.of("lock", "k", "LOST deleted .1")));
        core.link.broke();
        core.tick(new Stamp(20, 20));
        core.link.connected(false);
        core.link.received(1L);
        core.link.received(List.of("0", List.of()));
        core.take();
        core.link.received(9L);
        assertEquals(List.of(new Event.Granted("a", 9, null, request)), core.take().events());
    }

    /** P-FENCE-1: with Sentinels or several servers, not each need be on a Unix socket. */
    @Test
    void theFenceIsThatOfTheConnection() {
        Settings settings = new Settings(null, 0, null, false, Settings.BootClock.EXACT, () -> 0);
        Core plain = new Core(new Stamp(0, 0), settings);
        Map<String, Object> server =
                Map.of("role", "master", "pushes", 1L, "peer-timeout-ms", 8000L);
        plain.open();
        plain.link.connected(true);
        plain.link.received(server);
        assertEquals(5000, plain.link.fence.length());
        plain.link.broke();
        plain.open();
        plain.link.connected(false);
        plain.link.received(server);
        assertEquals(4000, plain.link.fence.length());
    }
}
