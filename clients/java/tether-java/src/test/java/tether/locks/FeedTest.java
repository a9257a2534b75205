package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.junit.jupiter.api.Test;

/**
 * P-WATCH-5: what a slow reader has not taken is bounded, and the last state of each key is told.
 */
class FeedTest {
    private final List<Runnable> waiting = new ArrayList<>();
    private final Map<String, String> told = new HashMap<>();
    private int changes;

    /** Each change begins where the last one ended. */
    private boolean isChain = true;

    private void tell(String key, String before, String after, String reason) {
        isChain &= Objects.equals(told.get(key), before) && !Objects.equals(before, after);
        changes++;
        if (after == null) {
            told.remove(key);
        } else {
            told.put(key, after);
        }
    }

    private void read() {
        while (!waiting.isEmpty()) {
            waiting.remove(0).run();
        }
        assertTrue(isChain);
    }

    @Test
    void aReaderThatIsFastIsToldAll() {
        Feed<String> feed = new Feed<>(waiting::add, this::tell);
        for (int count = 0; count < 5000; count++) {
            feed.put("k", count % 2 == 0 ? "there" : null, null);
            read();
        }
        assertEquals(5000, changes);
    }

    @Test
    void aReaderThatFailsIsToldWhatFollows() {
        List<String> told = new ArrayList<>();
        Feed<String> feed =
                new Feed<>(
                        waiting::add,
                        (key, before, after, reason) -> {
                            told.add(after);
                            if (after.equals("bad")) {
                                throw new IllegalStateException("as a listener may");
                            }
                        });
        feed.put("k", "bad", null);
        feed.put("k", "next", null);
        read();
        feed.put("k", "last", null);
        read();
        assertEquals(List.of("bad", "next", "last"), told);
    }

    @Test
    void aReaderThatIsSlowIsToldTheDifference() {
        Feed<String> feed = new Feed<>(waiting::add, this::tell);
        feed.put("gone", "there", null);
        feed.put("same", "there", null);
        read();
        for (int count = 0; count < 5000; count++) {
            feed.put("k" + count % 10, Integer.toString(count), null);
            feed.put("same", "away", null);
            feed.put("same", "there", null);
        }
        feed.put("gone", null, "deleted");
        read();
        assertTrue(changes < 100, changes + " changes");
        assertEquals(11, told.size());
        assertEquals("there", told.get("same"));
        assertEquals("4999", told.get("k9"));
        feed.put("k9", null, null);
        read();
        assertEquals(null, told.get("k9"));
    }
}
