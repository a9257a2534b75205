package tether.locks;

import java.util.List;

/**
 * What a caller asks for: one lock, several, or a temporary key. Times are in milliseconds, strings
 * hold one byte in each character. Nobody changes it once it was handed to a core.
 */
final class Ask {
    final List<String> keys;

    /** The value of a temporary key; null: a lock. */
    String temporary;

    boolean isSequence;
    boolean isElection;
    boolean isShared;
    boolean isReentrant;
    int permits;
    int permitsOf;
    String owner;
    String task;

    /** Null: for ever; 0: does not wait. */
    Double wait;

    Double lease;
    int acks;
    Double ackTimeout;
    double atLeast;

    /** It goes to a server that is about to get its slot (P-CLUSTER-4). */
    boolean isAsking;

    Ask(List<String> keys) {
        this.keys = List.copyOf(keys);
    }

    boolean isTemporary() {
        return temporary != null;
    }

    boolean waits() {
        return wait == null || wait > 0;
    }

    /** P-OWNER-7. */
    boolean reenters(Ask base) {
        return isReentrant
                && owner != null
                && base.isReentrant
                && keys.equals(base.keys)
                && isShared == base.isShared
                && permits == base.permits
                && permitsOf == base.permitsOf;
    }

    Ask copy() {
        Ask ask = new Ask(keys);
        ask.temporary = temporary;
        ask.isSequence = isSequence;
        ask.isElection = isElection;
        ask.isShared = isShared;
        ask.isReentrant = isReentrant;
        ask.permits = permits;
        ask.permitsOf = permitsOf;
        ask.owner = owner;
        ask.task = task;
        ask.wait = wait;
        ask.lease = lease;
        ask.acks = acks;
        ask.ackTimeout = ackTimeout;
        ask.atLeast = atLeast;
        ask.isAsking = isAsking;
        return ask;
    }
}
