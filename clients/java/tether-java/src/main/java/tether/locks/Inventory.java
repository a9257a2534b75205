package tether.locks;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import tether.locks.Request.Phase;
import tether.locks.Request.Place;

/**
 * What LOCK.MINE says of the holds that the server has for this client (P-SESS-6, P-LOSS-4,
 * P-REL-7).
 */
final class Inventory {
    /** A look at it. */
    private static final class Look {
        /** Until it is over, no request is sent (P-SESS-5). */
        final boolean isOfResume;

        final List<Request> asked = new ArrayList<>();
        final List<Map<?, ?>> found = new ArrayList<>();

        /** Of the loss of what is not found, of those asked about. */
        String reason;

        /** When it was begun. */
        Stamp sent;

        boolean hasPage;

        Look(boolean isOfResume, String reason) {
            this.isOfResume = isOfResume;
            this.reason = reason;
        }

        void ask(String reason, List<Request> requests) {
            for (Request request : requests) {
                if (!asked.contains(request)) {
                    asked.add(request);
                    this.reason = reason;
                }
            }
        }
    }

    private final Core core;
    private Look look;

    /** The next one: a page of this one came already, and is of before what it is to find. */
    private Look next;

    Inventory(Core core) {
        this.core = core;
    }

    boolean isOfResume() {
        return look != null && look.isOfResume;
    }

    /** The connection ended. */
    void forget() {
        look = null;
        next = null;
    }

    void takeAfterResume() {
        begin(true, "connection", core.requests.list());
    }

    /**
     * Looks which of these holds are still there, and whether there is one that nothing claims. A
     * hold that is not there is lost for this reason.
     */
    void look(String reason, List<Request> holds) {
        if (look == null) {
            begin(false, reason, holds);
            return;
        }
        if (look.hasPage && next == null) {
            next = new Look(false, reason);
        }
        (next == null ? look : next).ask(reason, holds);
    }

    private void begin(boolean isOfResume, String reason, List<Request> asked) {
        look = new Look(isOfResume, reason);
        look.ask(reason, asked);
        look.sent = core.now;
        core.link.send(List.of("LOCK.MINE"), this::answered);
    }

    private void answered(Object reply) {
        Look look = this.look;
        if (reply instanceof ServerError error) {
            refused(look, error);
            return;
        }
        List<?> page = (List<?>) reply;
        for (Object entry : (List<?>) page.get(1)) {
            look.found.add((Map<?, ?>) entry);
        }
        look.hasPage = true;
        String cursor = (String) page.get(0);
        if (!cursor.equals("0")) {
            core.link.send(List.of("LOCK.MINE", "CURSOR", cursor), this::answered);
            return;
        }
        this.look = null;
        compare(look);
        if (next != null) {
            Look again = next;
            next = null;
            look(again.reason, again.asked);
        }
    }

    private void refused(Look look, ServerError error) {
        boolean isForMoment =
                Codes.isMomentary(error) || look.isOfResume && Codes.isUnwritable(error);
        if (look.isOfResume && isForMoment) {
            core.link.leave(); // P-SESS-4
            return;
        }
        this.look = null;
        if (look.isOfResume) {
            core.link.endSession(); // P-SESS-7
        } else if (isForMoment) {
            core.link.tryAgain(() -> look(look.reason, look.asked));
        } else {
            Look again = next;
            next = null;
            loseAll(look);
            if (again != null) {
                loseAll(again);
            }
        }
    }

    /** What nobody can say whether it is there. */
    private void loseAll(Look look) {
        for (Request request : look.asked) {
            if (request.phase == Phase.HELD) {
                core.requests.lose(request, look.reason, List.of());
            }
        }
    }

    private void compare(Look look) {
        List<Map<?, ?>> unclaimed = new ArrayList<>();
        Map<Request, List<Map<?, ?>>> found = new HashMap<>();
        List<Request> requests = core.requests.list();
        for (Map<?, ?> entry : look.found) {
            if (!"held".equals(entry.get("state"))) {
                continue;
            }
            Request request = claimant(requests, entry);
            if (request == null) {
                unclaimed.add(entry);
            } else {
                found.computeIfAbsent(request, key -> new ArrayList<>()).add(entry);
            }
        }
        for (Request request : look.asked) {
            List<Map<?, ?>> entries = found.getOrDefault(request, List.of());
            if (request.phase == Phase.HELD
                    || request.phase == Phase.KEPT
                    || request.phase == Phase.EXTENDING) {
                compareHold(request, entries, look.reason);
            } else if (request.phase == Phase.ASKED && look.isOfResume && !request.isGivenUp) {
                compareRequest(request, entries, look.sent);
            } else if (look.isOfResume) {
                core.requests.settleUnnamed(request);
            }
        }
        for (Map<?, ?> entry : unclaimed) {
            // A page may be older than what was asked for since; after a resume nothing was.
            if (look.isOfResume || !core.requests.isAt(place(entry))) {
                release(entry);
            }
        }
        if (look.isOfResume) {
            core.requests.goOn();
        }
    }

    /** The request that a listed hold belongs to, or null. */
    private static Request claimant(List<Request> requests, Map<?, ?> entry) {
        boolean isTemporary = "temporary".equals(entry.get("kind"));
        Object label = entry.get("label") == null ? "" : entry.get("label");
        long token = (Long) entry.get("token");
        for (Request request : requests) {
            if (request.ask.isTemporary() != isTemporary || !request.label.equals(label)) {
                continue;
            }
            boolean isNamed =
                    request.isNamed
                            && entry.get("key") != null
                            && request.keys.contains(entry.get("key"));
            boolean claims =
                    switch (request.phase) {
                        case HELD, KEPT, EXTENDING -> request.token == token;
                        case RELEASING -> isNamed;
                        case ASKED, WAITING -> isNamed && token > request.floor; // P-SESS-11
                        default -> false;
                    };
            if (claims) {
                return request;
            }
        }
        return null;
    }

    private void compareHold(Request request, List<Map<?, ?>> entries, String reason) {
        if (entries.size() >= request.keys.size()) {
            return;
        }
        List<String> gone = new ArrayList<>(request.keys);
        entries.forEach(entry -> gone.remove(entry.get("key")));
        core.requests.gone(request, reason, gone);
    }

    /** P-LEASE-2: what was left of its lease when LOCK.MINE was sent. */
    private void compareRequest(Request request, List<Map<?, ?>> entries, Stamp sent) {
        if (entries.size() == request.keys.size()) {
            Double lease = request.ask.lease;
            for (Map<?, ?> entry : entries) {
                if (entry.get("lease-ms") instanceof Long left) {
                    lease = lease == null ? left : Math.min(lease, left);
                }
            }
            core.requests.grant(request, (Long) entries.get(0).get("token"), sent, lease);
            return;
        }
        core.requests.askAnew(request);
        entries.forEach(this::release);
    }

    private static Place place(Map<?, ?> entry) {
        String label = entry.get("label") instanceof String name ? name : "";
        return new Place("temporary".equals(entry.get("kind")), (String) entry.get("key"), label);
    }

    private void release(Map<?, ?> entry) {
        Place place = place(entry);
        // Null: its user may not read the name. It ends with the session.
        if (place.key() != null) {
            core.requests.releaseUnclaimed(place);
        }
    }
}
