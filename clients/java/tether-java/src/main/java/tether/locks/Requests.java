package tether.locks;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import tether.locks.Request.Deadline;
import tether.locks.Request.EarlyLoss;
import tether.locks.Request.Phase;
import tether.locks.Request.Place;

/** All requests of a core, and the queues of those that want one place. */
final class Requests {
    private static final double SERVERS_WORD = 100;
    private static final List<String> ASKING = List.of("ASKING");

    private final Core core;
    private final Set<Request> all = new LinkedHashSet<>();
    private final Map<Object, Request> byId = new HashMap<>();

    /** Those that have a time of their own. */
    private final Set<Request> timed = new LinkedHashSet<>();

    private final Map<Place, Deque<Request>> places = new HashMap<>();

    /**
     * Over for their owners, and not for the server: their release was refused, or they are kept.
     */
    private final Set<Request> lingering = new LinkedHashSet<>();

    /** Nothing is sent on a connection that is given up. */
    private boolean isLosing;

    private long labels;
    private int holds;
    private long greatest;

    Requests(Core core) {
        this.core = core;
    }

    boolean isEmpty() {
        return all.isEmpty();
    }

    boolean hasHolds() {
        return holds > 0;
    }

    /** Those of holds first, then all, but for what came by ASK: its slot is another server's. */
    Stream<String> keys() {
        List<Request> here = all.stream().filter(request -> !request.ask.isAsking).toList();
        Stream<Request> holds = here.stream().filter(request -> request.phase.isOfHold());
        return Stream.concat(holds, here.stream()).flatMap(request -> request.keys.stream());
    }

    List<Request> list() {
        return List.copyOf(all);
    }

    private String freshLabel() {
        labels++;
        return "." + labels; // P-OWNER-1
    }

    private void enter(Request request, Phase phase) {
        holds += (phase.isOfHold() ? 1 : 0) - (request.phase.isOfHold() ? 1 : 0);
        request.phase = phase;
    }

    // ---- time ----

    double next() {
        double next = Double.POSITIVE_INFINITY;
        for (Request request : timed) {
            next = Math.min(next, Math.min(untilWaited(request), untilLeased(request)));
            next = Math.min(next, untilKept(request));
        }
        return next;
    }

    void tick() {
        for (Request request : List.copyOf(timed)) {
            if (untilWaited(request) <= 0) {
                waited(request);
            }
        }
        for (Request request : List.copyOf(timed)) {
            if (untilLeased(request) <= 0) {
                request.explained.addAll(request.keys);
                lose(request, "lease", List.of()); // P-LEASE-2
            }
        }
        for (Request request : List.copyOf(timed)) {
            if (untilKept(request) <= 0) {
                end(request);
            }
        }
    }

    private double untilWaited(Request request) {
        boolean isCounting =
                request.wait != null
                        && request.wait > 0
                        && !request.isGivenUp
                        && request.phase.isBeforeGrant();
        return isCounting
                ? core.until(request.began, request.wait + SERVERS_WORD)
                : Double.POSITIVE_INFINITY;
    }

    private double untilLeased(Request request) {
        double until = Double.POSITIVE_INFINITY;
        if (request.phase == Phase.HELD) {
            for (Deadline lease : request.leases) {
                until = Math.min(until, core.until(lease));
            }
        }
        return until;
    }

    private double untilKept(Request request) {
        return request.phase == Phase.KEPT ? core.until(request.kept) : Double.POSITIVE_INFINITY;
    }

    /** P-ACQ-5. */
    private void waited(Request request) {
        Problem problem;
        if (request.phase == Phase.WAITING && core.link.isUp()) {
            problem = Problem.TAKEN;
        } else if (request.refusal != null) {
            problem = request.refusal;
        } else if (request.phase == Phase.QUEUED && core.link.isUp()) {
            problem = Problem.TAKEN;
        } else {
            problem = core.link.unanswered();
        }
        core.tell(new Event.Refused(request.id(), problem));
        request.isSilent = true;
        giveUp(request);
    }

    // ---- asking ----

    /** The request, or null if it was refused or shares the hold of another. */
    Request acquire(Object id, Ask ask) {
        Problem problem = problemOf(ask);
        if (problem != null) {
            core.tell(new Event.Refused(id, problem));
            return null;
        }
        String label = ask.isTemporary() ? "" : ask.owner != null ? ask.owner : freshLabel();
        String task = ask.isTemporary() && ask.task == null ? freshLabel() : ask.task; // P-OWNER-6
        Request request = new Request(id, ask, label, task, core.now);
        List<Request> others = lastAtPlaces(request);
        for (Request other : others) {
            boolean isReleased =
                    other.phase == Phase.RELEASING
                            || other.phase == Phase.EXTENDING
                            || other.phase == Phase.KEPT;
            if (!isReleased && !other.isGivenUp) {
                askAgain(id, request, other);
                return null;
            }
        }
        boolean isLeft = others.stream().anyMatch(Request::isLeft);
        if (!request.waits() && (isLeft || lingers(request))) {
            core.tell(new Event.Refused(id, Problem.TAKEN)); // P-OWNER-4
            return null;
        }
        add(request);
        byId.put(id, request);
        if (!isLosing) { // Whether to connect again is decided after it.
            core.link.need();
        }
        sendIfFirst(request);
        return request;
    }

    /** Why it is refused before anything is sent (P-LEVEL-2). */
    private Problem problemOf(Ask ask) {
        Double grace = core.settings.grace();
        if (core.isClosed) {
            return Problem.CLOSED;
        }
        if (ask.keys.isEmpty() || new HashSet<>(ask.keys).size() < ask.keys.size()) {
            return Problem.refused(
                    "KEYS", "a request needs keys, and each of them once"); // P-ACQ-9
        }
        if (ask.owner != null && ask.owner.startsWith(".")) {
            return Problem.refused(
                    "OWNER", "an owner's name must not begin with a dot"); // P-OWNER-2
        }
        if (ask.acks > 0 && grace == null) {
            return Problem.unfit("acknowledged grants need a session"); // P-ACKS-1
        }
        if (!core.settings.mayKeep(ask.atLeast)) {
            return Problem.UNKEPT; // P-LEAST-1
        }
        if (core.settings.isCluster()
                && ask.keys.stream().mapToInt(Slot::of).distinct().count() > 1) {
            return Problem.CROSSSLOT; // P-CLUSTER-2
        }
        return null;
    }

    private List<Request> lastAtPlaces(Request request) {
        List<Request> found = new ArrayList<>();
        for (Place place : request.places()) {
            Deque<Request> queue = places.get(place);
            if (queue != null) {
                found.add(queue.getLast());
            }
        }
        return found;
    }

    /** A second request for a place that has an open one (P-OWNER-3, P-OWNER-7). */
    private void askAgain(Object id, Request request, Request open) {
        if (open.phase == Phase.HELD && request.ask.reenters(open.ask)) {
            open.ids.add(id);
            byId.put(id, open);
            core.tell(new Event.Granted(id, open.token, null, open));
        } else {
            core.tell(new Event.Refused(id, request.waits() ? Problem.DEADLOCK : Problem.TAKEN));
        }
    }

    private void add(Request request) {
        all.add(request);
        if (request.wait != null || request.ask.lease != null || request.ask.atLeast > 0) {
            timed.add(request);
        }
        for (Place place : request.places()) {
            places.computeIfAbsent(place, key -> new ArrayDeque<>()).add(request);
        }
    }

    /** The open request that was made by this call, or null. */
    Request find(Object id) {
        Request request = byId.get(id);
        return request == null || request.isSilent ? null : request;
    }

    /**
     * Whether the server would take this request for a deadlock, since its task has one of the keys
     * still (P-OWNER-4).
     */
    private boolean lingers(Request request) {
        return request.task != null
                && lingering.stream()
                        .anyMatch(
                                former ->
                                        request.task.equals(former.task)
                                                && !Collections.disjoint(
                                                        former.keys, request.keys));
    }

    boolean isAt(Place place) {
        return places.containsKey(place);
    }

    void sendAll() {
        list().forEach(this::sendIfFirst);
    }

    private void sendIfFirst(Request request) {
        boolean isReady = core.link.isUp() && !core.inventory.isOfResume() && !core.isClosed;
        if (!isReady || isLosing || request.phase != Phase.QUEUED || lingers(request)) {
            return;
        }
        for (Place place : request.places()) {
            if (places.get(place).getFirst() != request) {
                return; // P-OWNER-4
            }
        }
        enter(request, Phase.ASKED);
        request.floor = greatest;
        double left =
                request.wait == null ? 0 : Math.max(0, core.until(request.began, request.wait));
        Stamp sent = core.now;
        sendAsking(request);
        core.link.send(request.words(left), reply -> answered(request, sent, reply));
    }

    /** P-CLUSTER-4. */
    private void sendAsking(Request request) {
        if (request.ask.isAsking) {
            core.link.send(ASKING, reply -> {});
        }
    }

    private void answered(Request request, Stamp sent, Object reply) {
        request.wasGranted |= reply instanceof Long token && token > 1;
        boolean isReleased = request.phase == Phase.RELEASING;
        if (reply instanceof List<?> named && (isReleased || request.phase == Phase.ASKED)) {
            name(request, (String) named.get(0));
            reply = named.get(1);
            if (isReleased) {
                sendReleases(request, request.keys);
                return;
            }
        }
        if (isReleased && !request.isNamed) {
            settle(request);
        }
        if (request.phase != Phase.ASKED) {
            return;
        }
        if (reply instanceof ServerError error) {
            refused(request, error);
        } else if (reply instanceof Long token && !(request.ask.isTemporary() && token == 0)) {
            grant(request, token, sent);
        } else if (request.waits() || request.ask.acks > 0) {
            enter(request, Phase.WAITING);
            request.hasWaited = true;
            request.refusal = null;
        } else {
            fail(request, Problem.TAKEN);
        }
    }

    /** P-TEMP-3. */
    private void name(Request request, String name) {
        request.keys = List.of(name);
        request.isNamed = true;
        places.computeIfAbsent(request.place(name), key -> new ArrayDeque<>()).addFirst(request);
    }

    /** P-ACQ-3, P-ACQ-6, P-ACQ-7. */
    private void refused(Request request, ServerError error) {
        boolean isForMoment =
                Codes.isMomentary(error) || Codes.isUnwritable(error) && request.hasWaited;
        if (request.waits() && isForMoment) {
            enter(request, Phase.QUEUED);
            request.refusal = Problem.refused(error);
            core.link.tryAgain(() -> sendIfFirst(request));
            return;
        }
        if (error.code().equals("DEADLOCK") && request.waits() && lingers(request)) {
            enter(request, Phase.QUEUED); // It overtook a release that was refused.
            return;
        }
        Failure failure =
                switch (error.code()) {
                    case "DEADLOCK" -> Failure.DEADLOCK;
                    case "QUARANTINE" -> Failure.TAKEN;
                    default -> Failure.REFUSED;
                };
        fail(request, new Problem(failure, error.code(), error.text()));
    }

    void grant(Request request, long token, Stamp leaseFrom) {
        grant(request, token, leaseFrom, request.ask.lease);
    }

    /** {@code lease}: how much of it was left at that moment; null: it has none. */
    void grant(Request request, long token, Stamp leaseFrom, Double lease) {
        enter(request, Phase.HELD);
        request.token = token;
        request.granted = core.now;
        request.atLeast = new Deadline(core.now, request.ask.atLeast);
        request.wasGranted = true;
        request.refusal = null;
        greatest = Math.max(greatest, token);
        if (lease != null) {
            request.setLease(new Deadline(leaseFrom, lease));
            timed.add(request);
        }
        String name = request.ask.isSequence ? request.keys.get(0) : null;
        core.tell(new Event.Granted(request.id(), token, name, request));
        core.link.accepted();
        if (request.early != null) {
            lose(request, request.early.reason(), List.of(request.early.key())); // P-LOSS-5
        }
    }

    // ---- releasing ----

    void release(Object id) {
        Request request = find(id);
        if (request == null || request.isGivenUp) {
            return;
        }
        if (request.phase.isBeforeGrant()) {
            giveUp(request);
        } else if (request.phase == Phase.HELD) {
            releaseHold(id, request);
        }
    }

    private void releaseHold(Object id, Request request) {
        if (request.ids.size() > 1) {
            request.ids.remove(id);
            byId.remove(id);
            core.tell(new Event.Released(id));
            return;
        }
        endCalls(request);
        if (core.until(request.atLeast) > 0) {
            keep(request);
        } else {
            enter(request, Phase.RELEASING);
            sendReleases(request, request.keys);
        }
    }

    /** P-ACQ-10: its caller stops waiting. A candidate does not stand again. */
    void giveUp(Object id) {
        Request made = byId.get(id);
        if (made != null) {
            made.isCandidate = false; // Also one whose caller was told of its end.
        }
        Request request = find(id);
        if (request != null) {
            if (request.phase == Phase.HELD) {
                release(id); // P-OWNER-7: other calls keep the hold that they share.
            } else {
                giveUp(request);
            }
        }
    }

    private void giveUp(Request request) {
        if (!request.phase.isBeforeGrant() || request.isGivenUp) {
            return;
        }
        request.isGivenUp = true;
        if (request.phase == Phase.QUEUED && request.unsettled.isEmpty()) {
            if (!request.isSilent) {
                core.tell(new Event.Over(request.id()));
            }
            end(request); // P-REL-3
        } else {
            enter(request, Phase.RELEASING);
            request.refusal = null;
            if (request.isNamed) { // Else the answer says what to release.
                sendReleases(request, request.keys);
            }
        }
    }

    private void sendReleases(Request request, List<String> keys) {
        keys.forEach(key -> request.unsettled.put(key, false));
        sendUnsettled(request);
    }

    /** All releases that are not answered, in their order (P-SESS-5). */
    void sendReleases() {
        list().forEach(this::sendUnsettled);
    }

    private void sendUnsettled(Request request) {
        if (!core.link.isUp() || core.inventory.isOfResume()) {
            return;
        }
        for (Map.Entry<String, Boolean> each : request.unsettled.entrySet()) {
            if (!each.getValue()) {
                each.setValue(true);
                String key = each.getKey();
                boolean wasSentBefore = request.wasSentBefore;
                sendAsking(request);
                core.link.send(
                        request.release(key),
                        reply -> released(request, key, wasSentBefore, reply));
            }
        }
    }

    private void released(Request request, String key, boolean wasSentBefore, Object reply) {
        if (request.phase == Phase.OVER) {
            return;
        }
        String code = ServerError.code(reply);
        boolean mayBeElsewhere =
                request.wasGranted && !request.isSilent && !request.explained.contains(key);
        if (code.equals("MOVED") && core.link.hasSession() && mayBeElsewhere) {
            core.link.leave(); // P-REL-8: the session goes on where the slot is.
            return;
        }
        if (reply instanceof ServerError error
                && !code.equals("NOTHELD")
                && !code.equals("MOVED")) {
            releaseRefused(request, key, error);
            return;
        }
        core.link.accepted();
        request.unsettled.remove(key);
        boolean wasGone =
                code.equals("NOTHELD")
                        || request.ask.isTemporary() && Long.valueOf(0).equals(reply);
        if (wasGone && request.wasGranted && !request.explained.contains(key) && !wasSentBefore) {
            goneBefore(request);
        }
        if (request.unsettled.isEmpty()) {
            settle(request);
        }
    }

    /** P-REL-7. */
    private void goneBefore(Request request) {
        if (!request.isGivenUp && !request.isSilent) {
            core.tell(new Event.Lost(request.id(), "deleted"));
            request.isSilent = true;
        }
        core.inventory.look("deleted", List.of());
    }

    /** P-REL-5. */
    private void releaseRefused(Request request, String key, ServerError error) {
        request.unsettled.put(key, false);
        request.refusal = Problem.refused(error);
        lingering.add(request);
        tellReleasing(request, error);
        for (Place place : request.places()) {
            for (Request other : List.copyOf(places.getOrDefault(place, new ArrayDeque<>()))) {
                if (other != request && other.phase == Phase.QUEUED && !other.waits()) {
                    fail(other, Problem.TAKEN); // P-OWNER-4
                }
            }
        }
        core.link.tryAgain(() -> sendUnsettled(request));
    }

    private void tellReleasing(Request request, ServerError error) {
        if (!request.isSilent && request.told.add(error.code())) {
            core.tell(new Event.Releasing(request.id(), Problem.refused(error)));
        }
    }

    /** Nothing of it is left at the server. */
    private void settle(Request request) {
        tellOver(request);
        standAgain(request);
    }

    private void tellOver(Request request) {
        if (!request.isSilent && request.phase != Phase.KEPT) {
            core.tell(
                    request.isGivenUp
                            ? new Event.Over(request.id())
                            : new Event.Released(request.id()));
        }
    }

    /** What SEQ made for a request that was given up, LOCK.MINE has listed: it has no name here. */
    void settleUnnamed(Request request) {
        if (request.phase == Phase.RELEASING && !request.isNamed) {
            settle(request);
        }
    }

    /** Releases a hold that nothing claims (P-SESS-6). */
    void releaseUnclaimed(Place place) {
        Ask ask = new Ask(List.of(place.key()));
        ask.temporary = place.isTemporary() ? "" : null;
        Request request = new Request(null, ask, place.label(), null, core.now);
        request.isSilent = true;
        request.isGivenUp = true;
        all.add(request);
        places.computeIfAbsent(place, key -> new ArrayDeque<>()).addFirst(request);
        enter(request, Phase.RELEASING);
        sendReleases(request, request.keys);
    }

    // ---- leases ----

    /** {@code atLeast}: null leaves that as it is. */
    void extend(Object id, double lease, Double atLeast) {
        Request request = find(id);
        if (request == null || request.phase != Phase.HELD) {
            core.tell(new Event.NotExtended(id, Problem.LOST));
            return;
        }
        Request.Extension extension = new Request.Extension(id, lease, atLeast, request.keys);
        request.extensions.add(extension);
        sendExtension(request, extension);
    }

    private void sendExtension(Request request, Request.Extension extension) {
        if (!core.link.isUp()) {
            return;
        }
        Stamp sent = core.now;
        if (extension.sent == null) {
            extension.sent = sent;
            request.gatherLeases();
            timed.add(request);
        }
        for (String key : request.keys) {
            if (extension.keys.contains(key)) {
                sendAsking(request);
                core.link.send(
                        request.extendTo(key, extension.lease),
                        reply -> extended(request, extension, key, sent, reply));
            }
        }
    }

    /** P-LEASE-1. */
    private void extended(
            Request request, Request.Extension extension, String key, Stamp sent, Object reply) {
        if (!request.extensions.contains(extension)) {
            return;
        }
        if (ServerError.code(reply).equals("NOTHELD")) {
            notHeld(request, key);
        } else if (reply instanceof ServerError error) {
            request.extensions.remove(extension);
            request.gatherLeases();
            core.tell(new Event.NotExtended(extension.id, Problem.refused(error)));
        } else {
            extension.keys.remove(key);
            if (extension.keys.isEmpty()) {
                request.extensions.remove(extension);
                request.setLease(new Deadline(sent, extension.lease));
                if (extension.atLeast != null) {
                    request.atLeast = new Deadline(sent, extension.atLeast);
                }
                core.tell(new Event.Extended(extension.id));
            }
        }
    }

    /** P-LEASE-3: nobody said that it is lost, so its key was renamed. */
    private void notHeld(Request request, String key) {
        lose(request, "deleted", List.of(key));
        core.inventory.look("deleted", List.of());
    }

    // ---- asking the server ----

    /** P-GUARD-2. */
    void checkServer(Object id) {
        Request request = find(id);
        if (request == null || request.phase != Phase.HELD) {
            core.tell(new Event.Checked(id, Problem.LOST));
            return;
        }
        Request.Inquiry inquiry = new Request.Inquiry(id, request.keys);
        request.inquiries.add(inquiry);
        sendInquiry(request, inquiry);
    }

    private void sendInquiry(Request request, Request.Inquiry inquiry) {
        if (core.link.isUp() && !core.inventory.isOfResume()) {
            for (String key : List.copyOf(inquiry.keys)) {
                sendAsking(request);
                core.link.send(
                        List.of("LOCK.CHECK", key, Long.toString(request.token)),
                        reply -> checked(request, inquiry, key, reply));
            }
        }
    }

    private void checked(Request request, Request.Inquiry inquiry, String key, Object reply) {
        if (!request.inquiries.contains(inquiry)) {
            return;
        }
        inquiry.keys.remove(key);
        Problem problem = null;
        if (ServerError.code(reply).equals("STALE")) {
            problem = new Problem(Failure.LOST, "stale", Problem.LOST.text());
        } else if (reply instanceof ServerError error) {
            problem = Problem.refused(error);
        }
        if (problem != null || inquiry.keys.isEmpty()) {
            request.inquiries.remove(inquiry);
            core.tell(new Event.Checked(inquiry.id, problem));
        }
    }

    // ---- keeping ----

    /** P-LEAST-2: the hold is extended to the rest of its time, and kept unseen. */
    private void keep(Request request) {
        enter(request, Phase.EXTENDING);
        lingering.add(request);
        double rest = core.until(request.atLeast);
        if (rest <= 0) {
            enter(request, Phase.RELEASING);
            sendReleases(request, request.keys);
            return;
        }
        if (!core.link.isUp()) {
            return;
        }
        Set<String> waiting = new HashSet<>(request.keys);
        Deadline kept = new Deadline(core.now, rest);
        for (String key : request.keys) {
            sendAsking(request);
            core.link.send(
                    request.extendTo(key, rest), reply -> kept(request, key, waiting, kept, reply));
        }
    }

    private void kept(
            Request request, String key, Set<String> waiting, Deadline kept, Object reply) {
        if (request.phase != Phase.EXTENDING) {
            return;
        }
        if (ServerError.code(reply).equals("NOTHELD")) {
            notHeld(request, key);
            return;
        }
        if (reply instanceof ServerError error) { // P-REL-5
            tellReleasing(request, error);
            core.link.tryAgain(
                    () -> {
                        if (request.phase == Phase.EXTENDING) {
                            keep(request);
                        }
                    });
            return;
        }
        waiting.remove(key);
        if (waiting.isEmpty()) {
            enter(request, Phase.KEPT);
            request.kept = kept;
            core.tell(new Event.Released(request.id()));
        }
    }

    // ---- pushes ----

    /** A push about a lock, or about a temporary key. */
    void pushed(boolean isTemporary, String key, String text) {
        String[] parts = text.split(" ", 2);
        String word = parts[0];
        String said = "";
        String label = parts.length > 1 ? parts[1] : "";
        if (word.equals("LOST") || word.equals("FAILED")) {
            String[] words = label.split(" ", -1);
            int size =
                    switch (words[0]) {
                        case "MOVED", "ASK" -> 3;
                        case "NOACKS" -> 4;
                        default -> 1;
                    };
            List<String> list = List.of(words);
            int end = Math.min(size, list.size());
            said = String.join(" ", list.subList(0, end));
            label = String.join(" ", list.subList(end, list.size()));
        }
        Deque<Request> queue = places.get(new Place(isTemporary, key, label));
        Request request = queue == null ? null : queue.getFirst();
        if (word.equals("LOST")) {
            lost(request, isTemporary, key, label, said);
        } else if (request != null) {
            decided(request, word, said);
        }
    }

    /** P-ACQ-4. */
    private void decided(Request request, String word, String said) {
        boolean isToken =
                !word.isEmpty() && word.chars().allMatch(digit -> '0' <= digit && digit <= '9');
        request.wasGranted |= isToken;
        boolean isOpen = request.phase == Phase.ASKED || request.phase == Phase.WAITING;
        if (request.isGivenUp || !isOpen) {
            return; // P-REL-4
        }
        if (word.equals("TIMEOUT")) {
            fail(request, Problem.TAKEN);
        } else if (word.equals("FAILED") && said.equals("UNBLOCKED")) {
            enter(request, Phase.ASKED);
            core.link.demoted();
        } else if (word.equals("FAILED")) {
            refused(request, new ServerError(said));
        } else if (isToken) {
            grant(request, Long.parseLong(word), core.now);
        }
    }

    private void lost(
            Request request, boolean isTemporary, String key, String label, String reason) {
        if (reason.equals("demoted")) {
            core.link.demoted(); // P-LOSS-7
        } else if (reason.equals("ended") && core.link.hasSession()) {
            core.link.sessionEnded();
        } else if (request == null) {
            lostUnderAnotherName(isTemporary, label, reason);
        } else {
            lostAtPlace(request, key, reason);
        }
    }

    /** P-LOSS-2. */
    private void lostAtPlace(Request request, String key, String reason) {
        request.explained.add(key);
        switch (request.phase) {
            case QUEUED, ASKED, WAITING -> {
                if (!request.isGivenUp) {
                    request.early = new EarlyLoss(reason, key);
                }
            }
            case KEPT -> end(request);
            case RELEASING -> {
                if (!request.isGivenUp && !request.isSilent) { // P-LOSS-6
                    core.tell(new Event.Lost(request.id(), reason));
                    request.isSilent = true;
                }
            }
            case HELD, EXTENDING -> lose(request, reason, List.of(key));
            default -> {}
        }
    }

    /** P-LOSS-4. */
    private void lostUnderAnotherName(boolean isTemporary, String label, String reason) {
        List<Request> candidates = new ArrayList<>();
        for (Request request : all) {
            if (request.phase == Phase.HELD
                    && request.ask.isTemporary() == isTemporary
                    && request.label.equals(label)) {
                candidates.add(request);
            }
        }
        if (candidates.isEmpty()) {
            return;
        }
        Request first = candidates.get(0);
        if (candidates.size() == 1 && !isTemporary && first.ask.owner == null) {
            lose(first, reason, first.keys.size() == 1 ? first.keys : List.of());
        } else {
            core.inventory.look(reason, candidates);
        }
    }

    // ---- ends ----

    /** These of its keys are gone, so all of it is lost; the others are released (P-LOSS-3). */
    void lose(Request request, String reason, List<String> gone) {
        tellLost(request, reason);
        request.isSilent = true;
        List<String> left = new ArrayList<>(request.keys);
        left.removeAll(gone);
        List<String> keys = request.keys;
        request.keys = List.copyOf(left);
        for (String key : keys) {
            if (gone.contains(key)) {
                leavePlace(request, key);
            }
        }
        if (left.isEmpty()) {
            standAgain(request);
            return;
        }
        boolean stands = standsAgain(request);
        enter(request, Phase.RELEASING);
        request.isGivenUp = true;
        sendReleases(request, request.keys);
        if (stands) {
            acquire(request.id(), request.ask); // Behind what it gives back.
        }
    }

    /** LOCK.MINE does not list these keys of a hold. */
    void gone(Request request, String reason, List<String> keys) {
        if (request.phase == Phase.KEPT) {
            end(request);
        } else {
            lose(request, reason, keys);
        }
    }

    /** P-OWNER-8. */
    private void tellLost(Request request, String reason) {
        if (request.isSilent) {
            return;
        }
        if (request.phase.isOfHold() && request.phase != Phase.KEPT) {
            request.ids.forEach(id -> core.tell(new Event.Lost(id, reason)));
        }
        endCalls(request);
    }

    /** Calls about a hold that are not answered when that is lost or released. */
    private void endCalls(Request request) {
        for (Request.Extension each : request.extensions) {
            core.tell(new Event.NotExtended(each.id, Problem.LOST));
        }
        request.extensions.clear();
        request.gatherLeases();
        for (Request.Inquiry each : request.inquiries) {
            core.tell(new Event.Checked(each.id, Problem.LOST));
        }
        request.inquiries.clear();
    }

    /** A request that was not granted ends with this error; what is being released is settled. */
    private void fail(Request request, Problem problem) {
        if (request.phase.isBeforeGrant()) {
            if (!request.isSilent && !request.isGivenUp) {
                core.tell(new Event.Refused(request.id(), problem));
            }
            end(request);
        } else {
            settle(request);
        }
    }

    private boolean standsAgain(Request request) {
        return request.isCandidate && !request.isGivenUp && !core.isClosed;
    }

    private void standAgain(Request request) {
        boolean stands = standsAgain(request);
        Object id = request.id();
        end(request);
        if (stands) {
            acquire(id, request.ask); // P-ELECT-2
        }
    }

    private void end(Request request) {
        enter(request, Phase.OVER);
        all.remove(request);
        timed.remove(request);
        request.ids.forEach(id -> byId.remove(id, request));
        request.keys.forEach(key -> leavePlace(request, key));
        if (lingering.remove(request)) {
            sendAll();
        }
    }

    private void leavePlace(Request request, String key) {
        Place place = request.place(key);
        Deque<Request> queue = places.get(place);
        if (queue == null) {
            return;
        }
        queue.remove(request);
        if (queue.isEmpty()) {
            places.remove(place);
        } else if (core.link.isUp()) {
            sendIfFirst(queue.getFirst());
        }
    }

    // ---- the connection ----

    /** P-CONN-10. */
    void notReached(Problem problem) {
        for (Request request : list()) {
            boolean ends = !request.waits() || problem.isFinal();
            if (request.phase == Phase.QUEUED && ends && !request.isGivenUp) {
                fail(request, problem);
            }
        }
    }

    /**
     * The session is gone, or the connection without one. {@code isElsewhere}: requests go on at
     * another master.
     */
    void loseAll(String reason, boolean isElsewhere) {
        isLosing = true;
        for (Request request : list()) {
            if (request.phase == Phase.HELD) {
                tellLost(request, reason);
                standAgain(request);
            } else if (!request.phase.isBeforeGrant() || request.isGivenUp) {
                settle(request);
            } else if (request.phase == Phase.ASKED && !request.waits() && !isElsewhere) {
                fail(request, Problem.UNREACHABLE); // P-RETRY-4
            } else {
                request.hasWaited |= request.phase == Phase.WAITING;
                enter(request, Phase.QUEUED);
                request.early = null;
            }
        }
        isLosing = false;
    }

    /** The connection of a session ended: what was on the wire is open again. */
    void broke() {
        for (Request request : all) {
            request.wasSentBefore |= request.unsettled.containsValue(true);
            request.unsettled.replaceAll((key, isOnWire) -> false);
            if (request.phase == Phase.WAITING) {
                enter(request, Phase.ASKED);
            }
        }
    }

    /**
     * After LOCK.MINE of a resume was answered in full: what it kept waiting goes on (P-SESS-5).
     */
    void goOn() {
        for (Request request : list()) {
            if (request.phase == Phase.EXTENDING) {
                keep(request);
            }
            for (Request.Extension each : request.extensions) {
                sendExtension(request, each);
            }
            for (Request.Inquiry each : request.inquiries) {
                sendInquiry(request, each);
            }
            sendIfFirst(request);
            sendUnsettled(request);
        }
    }

    /**
     * A request whose answer a break cut off was not granted: it is sent again with what is left of
     * its time.
     */
    void askAnew(Request request) {
        enter(request, Phase.QUEUED);
        request.hasWaited = true;
        request.early = null;
    }

    /** Everything ends; the commands that part from the session (P-LEAST-3). */
    List<List<String>> closed() {
        boolean keeps =
                all.stream()
                        .anyMatch(
                                request ->
                                        request.phase == Phase.KEPT
                                                || request.phase == Phase.EXTENDING);
        List<List<String>> parting = new ArrayList<>();
        for (Request request : list()) {
            if (keeps && request.isNamed && mayHaveMore(request.phase)) {
                request.keys.forEach(key -> part(request, key, parting));
            }
            if (request.phase == Phase.HELD) {
                tellLost(request, "closed");
            } else if (request.phase.isBeforeGrant() && !request.isSilent && !request.isGivenUp) {
                core.tell(new Event.Refused(request.id(), Problem.CLOSED));
            } else if (!request.phase.isBeforeGrant()) {
                tellOver(request);
            }
            end(request);
        }
        parting.add(List.of(keeps ? "SESSION.DETACH" : "SESSION.END"));
        return parting;
    }

    /** Whether the server may have a hold or a place that nobody wants to be kept. */
    private static boolean mayHaveMore(Phase phase) {
        return phase == Phase.HELD
                || phase == Phase.RELEASING
                || phase == Phase.ASKED
                || phase == Phase.WAITING;
    }

    private static void part(Request request, String key, List<List<String>> parting) {
        if (request.ask.isAsking) {
            parting.add(ASKING); // P-CLUSTER-4
        }
        parting.add(request.release(key));
    }
}
