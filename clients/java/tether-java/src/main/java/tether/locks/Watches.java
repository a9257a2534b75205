package tether.locks;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import tether.locks.Event.KeyState;

/** Watches of keys; those of one key share the server's (P-WATCH-1). */
final class Watches {
    /** P-CLUSTER-7. */
    private static final int MOST_ASKED_AGAIN = 64;

    private enum Phase {
        ASKED,
        KNOWN,
        LEAVING
    }

    /** A watch of the user, and what it was told of each key. */
    private record Watch(List<String> keys, Map<String, Boolean> told) {}

    private static final class Watched {
        final List<Object> by = new ArrayList<>();
        Phase phase = Phase.ASKED;

        /** A command of it is not answered; a push is no answer (P-WATCH-1). */
        boolean isOpen;

        boolean isThere;

        /** It is asked for again, and {@code isThere} is so. */
        boolean isAgain;
    }

    private final Core core;
    private final Map<Object, Watch> watches = new LinkedHashMap<>();
    private final Map<String, Watched> keys = new LinkedHashMap<>();

    /** The last of the keys that was asked for again. */
    private int asked;

    Watches(Core core) {
        this.core = core;
    }

    boolean isEmpty() {
        return watches.isEmpty();
    }

    Stream<String> keys() {
        return watches.values().stream().flatMap(watch -> watch.keys.stream());
    }

    void watch(Object id, List<String> names) {
        if (core.isClosed) {
            core.tell(new Event.Ended(id, Problem.CLOSED));
            return;
        }
        if (core.settings.isCluster() && names.stream().mapToInt(Slot::of).distinct().count() > 1) {
            core.tell(new Event.Ended(id, Problem.CROSSSLOT)); // P-CLUSTER-2
            return;
        }
        watches.put(id, new Watch(List.copyOf(names), new HashMap<>()));
        core.link.need();
        for (String key : names) {
            Watched watched = keys.get(key);
            if (watched == null) {
                watched = new Watched();
                keys.put(key, watched);
                watched.by.add(id);
                send(key);
            } else {
                watched.by.add(id);
                if (watched.phase == Phase.KNOWN) {
                    tell(id, key, watched.isThere);
                }
            }
        }
    }

    void unwatch(Object id) {
        Watch watch = watches.remove(id);
        if (watch != null) {
            watch.keys.forEach(key -> leave(id, key));
        }
    }

    private void leave(Object id, String key) {
        Watched watched = keys.get(key);
        watched.by.remove(id);
        if (!watched.by.isEmpty()) {
            return;
        }
        if (!core.link.isUp()) {
            keys.remove(key);
        } else if (watched.phase == Phase.KNOWN) {
            sendLeaving(key, watched);
        }
    }

    /** If nobody watches it; while a command is open, the answer to that leads here again. */
    private void sendLeaving(String key, Watched watched) {
        if (watched.by.isEmpty() && !watched.isOpen) {
            watched.phase = Phase.LEAVING;
            watched.isOpen = true;
            core.link.send(List.of("UNWATCHEX", key), reply -> left(key, watched));
        }
    }

    private void left(String key, Watched watched) {
        watched.isOpen = false;
        if (watched.by.isEmpty()) {
            keys.remove(key);
        } else {
            watched.phase = Phase.ASKED;
            send(key);
        }
    }

    private void send(String key) {
        Watched watched = keys.get(key);
        if (core.link.isUp() && watched != null && !watched.isOpen) {
            watched.isOpen = true;
            core.link.send(List.of("WATCHEX", key), reply -> answered(key, reply));
        }
    }

    private void answered(String key, Object reply) {
        Watched watched = keys.get(key);
        if (watched == null) {
            return;
        }
        watched.isOpen = false;
        if (watched.phase == Phase.KNOWN) {
            sendLeaving(key, watched); // A push said the state before.
        } else if (watched.isAgain
                && reply instanceof ServerError
                && !ServerError.code(reply).equals("MOVED")) {
            known(key, watched, watched.isThere);
        } else if (Codes.isMomentary(reply) || Codes.isOnItsWay(reply)) {
            core.link.tryAgain(() -> send(key)); // P-WATCH-4
        } else if (reply instanceof ServerError error) {
            refused(key, watched, error);
        } else {
            known(key, watched, "EXIST".equals(reply));
        }
    }

    private void refused(String key, Watched watched, ServerError error) {
        keys.remove(key);
        for (Object id : watched.by) {
            core.tell(new Event.Ended(id, Problem.refused(error)));
            for (String other : watches.remove(id).keys) {
                if (!other.equals(key)) {
                    leave(id, other);
                }
            }
        }
    }

    private void known(String key, Watched watched, boolean isThere) {
        watched.phase = Phase.KNOWN;
        watched.isThere = isThere;
        watched.isAgain = false;
        sendLeaving(key, watched);
        watched.by.forEach(id -> tell(id, key, isThere));
    }

    /** The state first, and then only what differs (P-WATCH-2, P-WATCH-3). */
    private void tell(Object id, String key, boolean isThere) {
        Boolean told = watches.get(id).told.put(key, isThere);
        if (told == null) {
            core.tell(new Event.Watched(id, key, isThere ? KeyState.EXISTS : KeyState.MISSING));
        } else if (told != isThere) {
            core.tell(new Event.Watched(id, key, isThere ? KeyState.ADDED : KeyState.DELETED));
        }
    }

    void pushed(String key, String change) {
        Watched watched = keys.get(key);
        boolean isThere = change.equals("ADD");
        if (watched == null || !isThere && !change.equals("DEL")) {
            return;
        }
        if (watched.phase == Phase.ASKED) {
            known(
                    key, watched,
                    !isThere); // P-WATCH-2: the reply, which follows, says what was before.
        }
        if (watched.phase == Phase.KNOWN && watched.isThere != isThere) {
            watched.isThere = isThere;
            List.copyOf(watched.by).forEach(id -> tell(id, key, isThere));
        }
    }

    /** P-WATCH-3. */
    void anew() {
        keys.values().removeIf(watched -> watched.by.isEmpty());
        keys.forEach(
                (key, watched) -> {
                    watched.phase = Phase.ASKED;
                    watched.isOpen = false;
                    watched.isAgain = false;
                    send(key);
                });
    }

    /** Finds out whether the slots of watched keys are still here (P-CLUSTER-7). */
    void askAgain() {
        List<String> names = List.copyOf(keys.keySet());
        for (int count = Math.min(names.size(), MOST_ASKED_AGAIN); count > 0; count--) {
            asked = (asked + 1) % names.size();
            Watched watched = keys.get(names.get(asked));
            if (watched.phase == Phase.KNOWN && !watched.isOpen) {
                watched.phase = Phase.ASKED;
                watched.isAgain = true;
                send(names.get(asked));
            }
        }
    }

    void end(Problem problem) {
        List<Object> ended = List.copyOf(watches.keySet());
        watches.clear();
        keys.clear();
        ended.forEach(id -> core.tell(new Event.Ended(id, problem)));
    }
}
