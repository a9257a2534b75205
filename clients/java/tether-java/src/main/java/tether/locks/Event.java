package tether.locks;

/** What the core tells its user. {@code id} is what the user called the request or watch by. */
sealed interface Event {
    /**
     * {@code key} is the name that the server made ({@code SEQ}), otherwise null. The request may
     * be over by the time at which this is told.
     */
    record Granted(Object id, long token, String key, Request request) implements Event {}

    /** The request ended without a grant. */
    record Refused(Object id, Problem problem) implements Event {}

    /** The hold ended, and its owner did not end it. */
    record Lost(Object id, String reason) implements Event {}

    /** The server refused the release, which is sent again. */
    record Releasing(Object id, Problem problem) implements Event {}

    record Released(Object id) implements Event {}

    /** The request was given up, and the server has nothing left of it. */
    record Over(Object id) implements Event {}

    record Extended(Object id) implements Event {}

    record NotExtended(Object id, Problem problem) implements Event {}

    /** The server was asked about the hold (P-GUARD-2); {@code problem} is null where it agrees. */
    record Checked(Object id, Problem problem) implements Event {}

    record Watched(Object id, String key, KeyState state) implements Event {}

    /** {@code value} may be null; {@code reason} is that of {@link MemberChange#DEL}. */
    record Member(
            Object id, String key, MemberChange change, long token, String value, String reason)
            implements Event {}

    /** {@code token} is null where nobody leads. */
    record Leader(Object id, Long token, String value) implements Event {}

    /** A watch, presence or observer is over. */
    record Ended(Object id, Problem problem) implements Event {}

    /** P-FENCE-5. */
    record NoBootClock() implements Event {}

    /** What a watch says of a key: first whether it exists, then each change. */
    enum KeyState {
        EXISTS,
        MISSING,
        ADDED,
        DELETED
    }

    /** What became of a member of a presence. */
    enum MemberChange {
        ADD,
        SET,
        DEL
    }
}
