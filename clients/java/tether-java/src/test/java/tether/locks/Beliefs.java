package tether.locks;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;

/** Who relied on which lock, and when: of programs that say so, line by line. */
public final class Beliefs {
    /** From when to when, in nanoseconds of a clock that all share. */
    public record Belief(String who, String lock, long token, long from, long until) {}

    private final Map<List<Object>, Belief> all = new ConcurrentHashMap<>();

    /**
     * Takes a line.
     *
     * @param who said it
     * @param line {@code B lock token nanoseconds}: it relied on that grant of that lock then
     * @return false: it is another line
     */
    public boolean read(String who, String line) {
        String[] words = line.split(" ");
        if (words.length != 4 || !words[0].equals("B")) {
            return false;
        }
        add(who, words[1], Long.parseLong(words[2]), Long.parseLong(words[3]));
        return true;
    }

    void add(String who, String lock, long token, long at) {
        all.merge(
                List.of(who, lock, token),
                new Belief(who, lock, token, at, at),
                (known, now) -> new Belief(who, lock, token, known.from, at));
    }

    public List<Belief> ofLock(String lock) {
        return all.values().stream()
                .filter(belief -> belief.lock.equals(lock))
                .sorted(Comparator.comparingLong(Belief::from))
                .toList();
    }

    public int size() {
        return all.size();
    }

    /** Who relied on it last. */
    public Optional<String> last(String lock) {
        return all.values().stream()
                .filter(belief -> belief.lock.equals(lock))
                .max(Comparator.comparingLong(Belief::until))
                .map(Belief::who);
    }

    /** Where two relied on one lock at the same time, or a later one has no greater token. */
    public List<String> overlaps() {
        List<String> found = new ArrayList<>();
        for (String lock : all.values().stream().map(Belief::lock).distinct().toList()) {
            Belief last = null; // The one that lasts longest of those before.
            for (Belief belief : ofLock(lock)) {
                if (last != null && belief.from <= last.until) {
                    found.add(last + " and " + belief);
                }
                if (last != null && belief.token <= last.token) {
                    found.add(belief + " has no greater token than " + last);
                }
                last = last == null || belief.until > last.until ? belief : last;
            }
        }
        return found;
    }
}
