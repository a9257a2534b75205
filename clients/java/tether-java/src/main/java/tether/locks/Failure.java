package tether.locks;

/** Why a call failed: the names of the client protocol. */
public enum Failure {
    /** Another owner has the lock, or still had it when the time to wait was over. */
    TAKEN,
    /** The request would wait for itself, or close a cycle of waits. */
    DEADLOCK,
    /** The server, or the client before it sent anything, refuses for another reason. */
    REFUSED,
    /** There is no connection, or no answer came within the time to wait. */
    UNREACHABLE,
    /** The server lacks the module. */
    NOMODULE,
    /** The server sends no pushes; {@code tether qualify} says why. */
    NOPUSH,
    /** The times that were asked for do not fit the server's settings. */
    UNFIT,
    /** In a cluster, the keys or the prefix are of more than one slot. */
    CROSSSLOT,
    /** The client was closed. */
    CLOSED,
    /** The hold was lost. */
    LOST
}
