package tether.locks;

/**
 * What became of a temporary key under a prefix. Those that are there already come first, as {@link
 * Kind#ADDED}.
 *
 * @param key its name
 * @param kind what became of it
 * @param token of the grant; 0 for {@link Kind#REMOVED}
 * @param value its value; null if it is not told, and for {@link Kind#REMOVED}
 * @param reason of {@link Kind#REMOVED}: the server's word, or {@code unknown} if it went unseen;
 *     otherwise null
 */
public record MemberEvent(String key, Kind kind, long token, String value, String reason) {
    /** What became of it. */
    public enum Kind {
        /** It is there. */
        ADDED,
        /** It has another token or value. */
        CHANGED,
        /** It is gone. */
        REMOVED
    }
}
