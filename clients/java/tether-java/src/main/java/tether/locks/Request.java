package tether.locks;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** A request on its way: from the call until the server has nothing left of it. */
final class Request {
    enum Phase {
        /** Not sent yet. */
        QUEUED,
        /** Sent, and not answered. */
        ASKED,
        /** The server has it in its queue. */
        WAITING,
        HELD,
        /**
         * Released by its owner, and being extended to the rest of {@code at_least} (P-LEAST-2).
         */
        EXTENDING,
        /** Kept unseen for the rest of {@code at_least}. */
        KEPT,
        RELEASING,
        OVER;

        boolean isOfHold() {
            return this == HELD || this == RELEASING || this == EXTENDING || this == KEPT;
        }

        boolean isBeforeGrant() {
            return this == QUEUED || this == ASKED || this == WAITING;
        }
    }

    /** A key with an owner's label; for a temporary key the label is empty. */
    record Place(boolean isTemporary, String key, String label) {}

    /** A moment, and how long after it something is over. */
    record Deadline(Stamp since, double length) {}

    /** An extension that is not answered for these keys. */
    static final class Extension {
        final Object id;
        final double lease;

        /** The hold is kept at least for this time from then on; null: that stays as it is. */
        final Double atLeast;

        final Set<String> keys;

        /** For the first time; null: not yet. */
        Stamp sent;

        Extension(Object id, double lease, Double atLeast, List<String> keys) {
            this.id = id;
            this.lease = lease;
            this.atLeast = atLeast;
            this.keys = new LinkedHashSet<>(keys);
        }
    }

    /** A call that asks the server whether the hold still has its keys. */
    static final class Inquiry {
        final Object id;

        /** Those not answered. */
        final Set<String> keys;

        Inquiry(Object id, List<String> keys) {
            this.id = id;
            this.keys = new LinkedHashSet<>(keys);
        }
    }

    /** A loss that came before the grant (P-LOSS-5). */
    record EarlyLoss(String reason, String key) {}

    final Ask ask;
    final String label;

    /** For the server's search for deadlocks, or null (P-OWNER-6). */
    final String task;

    final Stamp began;

    /** Null: for ever; 0: does not wait. */
    final Double wait;

    /** The calls that share the hold (P-OWNER-7). Empty for what nobody asked for. */
    final List<Object> ids = new ArrayList<>();

    /** Keys of which a push said that they are lost. */
    final Set<String> explained = new HashSet<>();

    /** Keys to release, and whether that is on the wire. */
    final Map<String, Boolean> unsettled = new LinkedHashMap<>();

    /** The codes of refusals of the release that were told. */
    final Set<String> told = new HashSet<>();

    List<String> keys;
    volatile Phase phase = Phase.QUEUED;
    long token;

    /** It stands again after each term (P-ELECT-2). */
    boolean isCandidate;

    /** Its caller wants it no more. */
    boolean isGivenUp;

    /** Nobody is told of it any more. */
    boolean isSilent;

    /** A break cut off the answer to a release (P-REL-7). */
    boolean wasSentBefore;

    /** It stood in a queue (P-ACQ-7). */
    boolean hasWaited;

    /** The server said so, also if nobody was told. */
    boolean wasGranted;

    /** The last refusal for a moment, or of the release. */
    Problem refusal;

    EarlyLoss early;

    /** When its user was told of the grant. */
    Stamp granted;

    /**
     * The lease that was granted or extended, and those of extensions that are not answered: the
     * server may have set each of them, so the one that ends first counts (P-LEASE-2).
     */
    volatile List<Deadline> leases = List.of();

    /** Not answered, in their order. */
    final List<Extension> extensions = new ArrayList<>();

    /** Not answered, in their order. */
    final List<Inquiry> inquiries = new ArrayList<>();

    /** With SEQ, the server names the key: before that it has no place (P-TEMP-3). */
    boolean isNamed;

    private Deadline lease;

    /** Until when it is kept although it is released; null before the grant (P-LEAST-2). */
    Deadline atLeast;

    Deadline kept;

    /** The greatest token that was known when it was sent (P-SESS-11). */
    long floor;

    Request(Object id, Ask ask, String label, String task, Stamp began) {
        this.ask = ask;
        this.label = label;
        this.task = task;
        this.began = began;
        this.wait = ask.isSequence ? Double.valueOf(0) : ask.wait;
        this.keys = ask.keys;
        this.isCandidate = ask.isElection;
        this.isNamed = !ask.isSequence;
        if (id != null) {
            ids.add(id);
        }
    }

    Object id() {
        return ids.isEmpty() ? null : ids.get(0);
    }

    boolean waits() {
        return wait == null || wait > 0;
    }

    Place place(String key) {
        return new Place(ask.isTemporary(), key, label);
    }

    List<Place> places() {
        return isNamed ? keys.stream().map(this::place).toList() : List.of();
    }

    /** Whether its caller has released it, and the server has it still (P-OWNER-4). */
    boolean isLeft() {
        boolean isRefused = phase == Phase.RELEASING && refusal != null;
        return isRefused || phase == Phase.EXTENDING || phase == Phase.KEPT;
    }

    void setLease(Deadline lease) {
        this.lease = lease;
        gatherLeases();
    }

    /** After each change of the extensions, too. */
    void gatherLeases() {
        List<Deadline> all = new ArrayList<>();
        if (lease != null) {
            all.add(lease);
        }
        for (Extension each : extensions) {
            if (each.sent != null) {
                all.add(new Deadline(each.sent, each.lease));
            }
        }
        leases = List.copyOf(all);
    }

    /** P-ACQ-1, P-TEMP-1. */
    List<String> words(double left) {
        List<String> words = new ArrayList<>();
        if (ask.isTemporary()) {
            words.addAll(
                    List.of("SETTP", keys.get(0), ask.temporary, ask.isSequence ? "SEQ" : "TOKEN"));
        } else if (keys.size() > 1) {
            words.addAll(List.of("LOCK.MACQUIRE", Integer.toString(keys.size())));
            words.addAll(keys);
        } else {
            words.addAll(List.of("LOCK.ACQUIRE", keys.get(0)));
        }
        if (ask.isShared) {
            words.add("SHARED");
        }
        if (ask.permits > 0) {
            words.addAll(
                    List.of(
                            "PERMITS",
                            Integer.toString(ask.permits),
                            "OF",
                            Integer.toString(ask.permitsOf)));
        }
        if (!ask.isTemporary()) {
            words.addAll(List.of("OWNER", label));
        }
        if (task != null) {
            words.addAll(List.of("TASK", task));
        }
        words.add("NOTIFY");
        if (ask.lease != null) {
            words.addAll(List.of("LEASE", Long.toString(Millis.roundUp(ask.lease))));
        }
        if (waits() || ask.acks > 0) {
            words.addAll(
                    List.of(
                            "WAIT",
                            wait == null ? "0" : Long.toString(Millis.roundUp(left)),
                            "PUSH"));
        }
        if (ask.acks > 0) {
            words.addAll(List.of("ACKS", Integer.toString(ask.acks)));
            if (ask.ackTimeout != null) {
                words.addAll(List.of("ACKTIMEOUT", Long.toString(Millis.roundUp(ask.ackTimeout))));
            }
        }
        return words;
    }

    /** P-REL-1. */
    List<String> release(String key) {
        return ask.isTemporary()
                ? List.of("DELTP", key)
                : List.of("LOCK.RELEASE", key, "OWNER", label, "ALL");
    }

    /** P-LEASE-1. */
    List<String> extendTo(String key, double ms) {
        return List.of("LOCK.EXTEND", key, Long.toString(Millis.roundUp(ms)), "OWNER", label);
    }
}
