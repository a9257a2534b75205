package tether.locks;

import java.util.Set;

/** What the codes of the server's errors mean (P-ERR-2). All others are final. */
final class Codes {
    private static final Set<String> MOMENTARY =
            Set.of("BUSY", "LOADING", "CLUSTERDOWN", "TRYAGAIN");
    private static final Set<String> UNWRITABLE = Set.of("NOREPLICAS", "MISCONF", "OOM");
    private static final Set<String> NOT_HERE = Set.of("READONLY", "MASTERDOWN");
    private static final Set<String> VOUCH_FOR_NOTHING =
            Set.of("LOADING", "MASTERDOWN", "READONLY");

    private Codes() {}

    static boolean isMomentary(Object reply) {
        return MOMENTARY.contains(ServerError.code(reply));
    }

    static boolean isUnwritable(Object reply) {
        return UNWRITABLE.contains(ServerError.code(reply));
    }

    /** The keys of the slot are at two nodes (P-CLUSTER-7). */
    static boolean isOnItsWay(Object reply) {
        return ServerError.code(reply).equals("ASK");
    }

    static boolean isNotHere(Object reply) {
        return NOT_HERE.contains(ServerError.code(reply));
    }

    /** P-FENCE-6. */
    static boolean vouches(Object reply) {
        return !VOUCH_FOR_NOTHING.contains(ServerError.code(reply));
    }

    static boolean isLoading(Object reply) {
        return ServerError.code(reply).equals("LOADING");
    }
}
