package tether.locks;

/**
 * What a watch says of a key: first whether it exists, then each change.
 *
 * @param key its name
 * @param kind what is so
 */
public record KeyEvent(String key, Kind kind) {
    /** What is so. */
    public enum Kind {
        /** The key exists: the first event of it. */
        EXISTS,
        /** The key does not exist: the first event of it. */
        MISSING,
        /** The key was made. */
        ADDED,
        /** The key was deleted. */
        DELETED
    }
}
