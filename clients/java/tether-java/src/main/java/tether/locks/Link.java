package tether.locks;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.function.Consumer;

/** The connection, the session on it, and the fence around its holds. */
final class Link {
    enum State {
        NONE,
        OPENING,
        GREETING,
        RESUMING,
        UP
    }

    /**
     * D, and since when the last answer vouches for it (P-FENCE-2).
     *
     * @param endedBy why nothing is vouched for any more; null while it is
     */
    record Fence(Stamp vouched, double length, String endedBy) {}

    private record Sent(Stamp at, Consumer<Object> then) {}

    private static final double MARGIN = 1000;
    private static final double SHORTEST = 100;
    private static final double OF_UNIX = 5000;
    private static final double SOUND = 1000;
    private static final double LONGEST_DELAY = 1000;
    private static final double CONNECT_WITHIN = 5000;
    private static final double END_WITHIN = 2000;
    private static final double RESUME_TO_END_WITHIN = 1000;
    private static final Consumer<Object> IGNORE = reply -> {};

    /** Null before the first connection. Any thread may read it. */
    volatile Fence fence;

    State state = State.NONE;

    /** Of the session; null: there is none. */
    String secret;

    private final Core core;
    private final Queue<Sent> replies = new ArrayDeque<>();
    private final List<Runnable> retries = new ArrayList<>();
    private Stamp since;
    private Stamp pinged;

    /** When the command was sent whose answer is being handled. */
    private Stamp answeredSent;

    /** The peer of this connection cannot vanish (P-FENCE-1). */
    private boolean isUnix;

    private double fenceToBe;
    private int failed;

    /** Why the last attempt failed, if none has succeeded since. */
    private Problem whyNot = Problem.UNREACHABLE;

    private int refused;
    private Request.Deadline connectAt;

    /** The last connection ended soon, and nobody wanted another one (P-RETRY-2). */
    private Request.Deadline notBefore;

    private Request.Deadline retryAt;
    private Request.Deadline closingAt;
    private List<List<String>> parting = List.of(List.of("SESSION.END"));
    private boolean hasSaidClock;

    Link(Core core) {
        this.core = core;
        since = core.now;
        pinged = core.now;
        answeredSent = core.now;
    }

    boolean isUp() {
        return state == State.UP;
    }

    private boolean hasFence() {
        return fence != null && fence.endedBy == null;
    }

    private void endFence(String reason) {
        if (hasFence()) {
            fence = new Fence(fence.vouched, fence.length, reason);
        }
    }

    boolean hasSession() {
        return secret != null;
    }

    // ---- time ----

    double next() {
        double next = Math.min(core.until(closingAt), core.until(connectAt));
        if (isGreeting()) {
            next = Math.min(next, core.until(since, connectWithin()));
        }
        if (!hasFence()) {
            return next;
        }
        next = Math.min(next, core.until(fence.vouched, fence.length));
        next = Math.min(next, untilStuck());
        if (isUp()) {
            next = Math.min(next, core.until(pinged, fence.length / 4));
            next = Math.min(next, core.until(retryAt));
        }
        return next;
    }

    /** P-FENCE-10. */
    private double untilStuck() {
        boolean mayLeave = isUp() && hasFence() && hasSession() && core.requests.hasHolds();
        return mayLeave ? core.until(fence.vouched, fence.length / 2) : Double.POSITIVE_INFINITY;
    }

    private boolean isGreeting() {
        return state == State.GREETING || state == State.RESUMING;
    }

    /** P-CONN-9. */
    private double connectWithin() {
        return hasSession() && hasFence()
                ? Math.min(CONNECT_WITHIN, fence.length / 2)
                : CONNECT_WITHIN;
    }

    /** P-FENCE-8. */
    void tickFence() {
        if (!hasFence() || core.until(fence.vouched, fence.length) > 0) {
            return;
        }
        boolean wasOpen = state != State.NONE;
        boolean hadSession = hasSession();
        endFence("silence");
        core.requests.loseAll("silence", false);
        secret = null;
        if (wasOpen) {
            drop(hadSession ? 0 : core.settings.stopWithin()); // P-FENCE-9
        }
    }

    void tickConnection() {
        if (core.until(closingAt) <= 0) {
            closingAt = null;
            drop(0);
        }
        if (untilStuck() <= 0) {
            leave();
        }
        if (isGreeting() && core.until(since, connectWithin()) <= 0) {
            leave(); // P-CONN-9
        }
        if (core.until(connectAt) <= 0) {
            connect();
        }
        if (isUp() && core.until(retryAt) <= 0) {
            retryAt = null;
            List<Runnable> due = List.copyOf(retries);
            retries.clear();
            due.forEach(Runnable::run);
        }
        if (isUp() && hasFence() && core.until(pinged, fence.length / 4) <= 0) {
            pinged = core.now;
            send(List.of("PING"), IGNORE); // P-FENCE-7
            if (core.settings.isCluster()) {
                core.watches.askAgain();
            }
        }
    }

    /** P-RETRY-3. */
    void tryAgain(Runnable again) {
        if (retryAt == null) {
            retryAt = new Request.Deadline(core.now, delay(refused, LONGEST_DELAY));
            refused++;
        }
        retries.add(again);
    }

    void accepted() {
        refused = 0;
    }

    /** P-RETRY-1. */
    private double delay(int failures, double longest) {
        double delay = 20.0 * (1L << Math.min(failures, 16));
        return Math.min(longest, delay) * (1 + core.settings.random().getAsDouble()) / 2;
    }

    // ---- opening ----

    void need() {
        if (state != State.NONE || connectAt != null) {
            return;
        }
        if (notBefore != null && core.until(notBefore) > 0) {
            connectAt = notBefore;
        } else {
            connect();
        }
    }

    private void connect() {
        state = State.OPENING;
        connectAt = null;
        notBefore = null;
        core.order(new Order.Connect(connectWithin(), core.slot()));
    }

    /** The connection is open, and the shell has greeted on it. */
    void connected(boolean isUnix) {
        this.isUnix = isUnix;
        since = core.now;
        replies.clear();
        if (hasSession()) {
            state = State.RESUMING;
            send(List.of("SESSION.RESUME", secret, "NOTIFY"), this::resumed); // P-SESS-3
        } else {
            state = State.GREETING;
            send(List.of("LOCK.SERVER"), this::greeted);
        }
    }

    /** The attempt to connect failed. */
    void unreached(Problem problem) {
        state = State.NONE;
        endAttempt(problem);
        reconnect();
    }

    /** P-CONN-10. */
    private void endAttempt(Problem problem) {
        whyNot = problem;
        core.requests.notReached(problem);
        if (problem.isFinal()) {
            core.watches.end(problem);
            core.presences.end(problem);
        }
    }

    private boolean isWanted() {
        return !core.isClosed && (hasSession() || core.isWanted());
    }

    private void reconnect() {
        if (isWanted() && state == State.NONE && connectAt == null) {
            connectAt = nextAttempt();
        }
    }

    /** That no server has answered so far, and why the last attempt failed. */
    Problem unanswered() {
        return whyNot == Problem.UNREACHABLE
                ? whyNot
                : Problem.unreachable(
                        Problem.UNREACHABLE.code(),
                        Problem.UNREACHABLE.text() + ": " + whyNot.text());
    }

    /** After an attempt that failed (P-RETRY-1). */
    private Request.Deadline nextAttempt() {
        double longest =
                hasSession() && hasFence()
                        ? Math.min(LONGEST_DELAY, fence.length / 8)
                        : LONGEST_DELAY;
        failed++;
        return new Request.Deadline(core.now, delay(failed - 1, longest));
    }

    private void greeted(Object reply) {
        if (reply instanceof ServerError error) {
            greetingRefused(error);
            return;
        }
        Map<?, ?> server = reply instanceof Map<?, ?> map ? map : Map.of();
        if (!"master".equals(server.get("role"))) {
            leaveFor(Problem.unreachable("REPLICA", "this server is a replica")); // P-CONN-5
        } else if (!Long.valueOf(1).equals(server.get("pushes"))) {
            leaveFor(Problem.NOPUSH); // P-NOPUSH-1
        } else {
            fenceToBe = fence(server);
            if (fenceToBe < 0) {
                leaveFor(
                        Problem.unfit(
                                "the grace, the fence and the time to stop do not fit each other"
                                        + " and the server's tether.peer-timeout"));
                return;
            }
            sayClock();
            if (core.settings.grace() == null) {
                begin();
            } else {
                startSession();
            }
        }
    }

    private void greetingRefused(ServerError error) {
        if (error.isUnknownCommand()) {
            leaveFor(Problem.NOMODULE); // P-CONN-6
        } else if (Codes.isMomentary(error) || Codes.isNotHere(error)) {
            leaveFor(Problem.unreachable(error.code(), error.text()));
        } else {
            leaveFor(Problem.refused(error));
        }
    }

    private void sayClock() {
        if (core.settings.bootClock() == Settings.BootClock.NONE && !hasSaidClock) {
            hasSaidClock = true;
            core.tell(new Event.NoBootClock());
        }
    }

    /** P-FENCE-1: D, or a negative number if the times are unfit. */
    private double fence(Map<?, ?> server) {
        Settings settings = core.settings;
        double stop = settings.stopWithin();
        double timeout = server.get("peer-timeout-ms") instanceof Long ms ? ms : 0;
        double most;
        if (settings.grace() != null) {
            most = settings.grace() - stop - MARGIN;
        } else if (isUnix) {
            most = OF_UNIX;
        } else {
            most = timeout == 0 ? 0 : Math.min(timeout / 2, timeout - stop - MARGIN);
        }
        double length = settings.fence() == null ? most : settings.fence();
        return SHORTEST <= length && length <= most ? length : -1;
    }

    /** P-SESS-1. */
    private void startSession() {
        send(
                List.of(
                        "SESSION.START",
                        "GRACE",
                        Long.toString(Millis.roundUp(core.settings.grace()))),
                this::started);
    }

    private void started(Object reply) {
        if (reply instanceof ServerError error) {
            if (Codes.isMomentary(error) || Codes.isUnwritable(error) || Codes.isNotHere(error)) {
                leaveFor(Problem.unreachable(error.code(), error.text()));
            } else {
                leaveFor(Problem.refused(error));
            }
            return;
        }
        secret = (String) reply;
        begin();
    }

    /** A connection that has nothing of a former one. */
    private void begin() {
        fence = new Fence(answeredSent, fenceToBe, null);
        pinged = core.now;
        state = State.UP;
        whyNot = Problem.UNREACHABLE;
        core.requests.sendAll();
        core.watches.anew();
        core.presences.anew();
    }

    // ---- sessions ----

    private void resumed(Object reply) {
        if (core.isClosed) {
            if (reply instanceof ServerError) {
                parted(reply);
            } else {
                part();
            }
        } else if (ServerError.code(reply).equals("NOSESSION")) {
            sessionOver();
        } else if (reply instanceof ServerError error) {
            cut();
            leaveFor(Problem.unreachable(error.code(), error.text())); // P-SESS-4
        } else {
            vouch(answeredSent);
            pinged = core.now;
            state = State.UP;
            whyNot = Problem.UNREACHABLE;
            core.requests.sendReleases(); // P-SESS-5
            core.inventory.takeAfterResume();
            core.watches.anew();
            core.presences.anew();
        }
    }

    /** P-SESS-7: all holds are lost, and a new session begins on this connection. */
    void sessionOver() {
        secret = null;
        fenceToBe = fence.length;
        endFence("connection");
        core.requests.loseAll("connection", false);
        state = State.GREETING;
        startSession();
    }

    /** P-SESS-7. */
    void endSession() {
        send(List.of("SESSION.END"), IGNORE);
        sessionOver();
    }

    /** P-SESS-10. */
    void sessionEnded() {
        secret = null;
        endFence("ended");
        core.requests.loseAll("ended", false);
        drop(0);
    }

    // ---- closing ----

    /** {@code parting}: what to send before the connection is closed. */
    void close(List<List<String>> parting) {
        this.parting = parting;
        connectAt = null;
        retryAt = null;
        endFence("closed");
        if (isUp() && hasSession()) {
            closingAt = new Request.Deadline(core.now, END_WITHIN);
            part();
        } else if (hasSession()) {
            closingAt = new Request.Deadline(core.now, RESUME_TO_END_WITHIN);
            if (state == State.NONE) {
                state = State.OPENING;
                core.order(new Order.Connect(RESUME_TO_END_WITHIN, core.slot()));
            }
        } else if (state != State.NONE) {
            drop(0);
        }
    }

    /** Whether nothing more is to be done for a client that was closed. */
    boolean isOver() {
        return core.isClosed && state == State.NONE;
    }

    private void part() {
        for (List<String> words : parting.subList(0, parting.size() - 1)) {
            send(words, IGNORE);
        }
        send(parting.get(parting.size() - 1), this::parted);
    }

    private void parted(Object reply) {
        closingAt = null;
        drop(0);
    }

    // ---- the end of a connection ----

    /** The greeting says that this server is of no use. */
    private void leaveFor(Problem problem) {
        core.order(new Order.Leave(0, problem));
        unreached(problem);
    }

    /** Closes the connection on purpose, and goes on as after a break. */
    void leave() {
        core.order(new Order.Leave(0, null));
        broke();
    }

    /** The connection is given up with all that was on it. */
    private void drop(double stay) {
        core.order(new Order.Leave(stay, null));
        cut();
        goOn();
    }

    private void cut() {
        state = State.NONE;
        replies.clear();
        core.inventory.forget();
        retries.clear();
        retryAt = null;
        refused = 0;
    }

    /** P-RETRY-2. */
    private void goOn() {
        if (core.elapsed(since) < SOUND) {
            if (isWanted()) {
                reconnect();
            } else {
                notBefore = nextAttempt();
            }
            return;
        }
        failed = 0;
        if (isWanted()) {
            connect();
        }
    }

    void broke() {
        if (state == State.NONE) {
            return;
        }
        boolean hadSession = hasSession();
        State was = state;
        cut();
        if (core.isClosed) {
            closingAt = null;
            return;
        }
        if (was == State.GREETING) {
            unreached(Problem.UNREACHABLE); // P-CONN-10
            return;
        }
        if (hadSession) {
            core.requests.broke(); // P-SESS-2
        } else {
            endFence("connection");
            core.requests.loseAll("connection", false);
        }
        if (was == State.RESUMING) {
            endAttempt(Problem.UNREACHABLE);
        }
        goOn();
    }

    /** P-SESS-8: this server is no master any more. */
    void demoted() {
        if (state == State.NONE) {
            return;
        }
        if (hasSession()) {
            leave();
        } else {
            endFence("demoted");
            core.requests.loseAll("demoted", true);
            drop(0);
        }
    }

    // ---- frames ----

    void send(List<String> words, Consumer<Object> then) {
        core.write(words);
        replies.add(new Sent(core.now, then));
    }

    /** P-FRAME-1: one frame, in its order. */
    void received(Object frame) {
        if (hasFence() && core.until(fence.vouched, fence.length) <= 0) {
            core.tick(core.now); // P-FENCE-8: what arrives later changes nothing.
        }
        if (state == State.NONE || state == State.OPENING) {
            return;
        }
        if (frame instanceof Push push) {
            pushed(push);
            return;
        }
        Sent sent = replies.poll();
        if (sent == null) {
            leave(); // P-FRAME-2
            return;
        }
        answeredSent = sent.at;
        if (isUp() && Codes.vouches(frame)) {
            vouch(sent.at);
        }
        boolean isNotHere = Codes.isNotHere(frame) || hasSession() && Codes.isLoading(frame);
        if (isUp() && !core.isClosed && isNotHere) {
            demoted();
        } else {
            sent.then.accept(frame);
        }
    }

    private void vouch(Stamp sent) {
        if (hasFence() && core.elapsed(sent) < core.elapsed(fence.vouched)) {
            fence = new Fence(sent, fence.length, null);
        }
    }

    /** P-FRAME-4: pushes that nobody knows are ignored. */
    private void pushed(Push push) {
        List<Object> elements = push.elements();
        if (elements.size() < 3
                || !(elements.get(0) instanceof String kind)
                || !(elements.get(1) instanceof String key)
                || !(elements.get(2) instanceof String text)) {
            return;
        }
        switch (kind) {
            case "lock", "settp" -> core.requests.pushed(kind.equals("settp"), key, text);
            case "watchex" -> core.watches.pushed(key, text);
            case "watchtp" -> core.presences.pushed(key, text);
            default -> {}
        }
    }
}
