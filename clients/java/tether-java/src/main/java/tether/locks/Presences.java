package tether.locks;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.TreeSet;
import java.util.stream.Stream;
import tether.locks.Event.MemberChange;

/**
 * Watches of prefixes, and observers of elections. Those of one prefix share the server's
 * (P-PRES-2).
 */
final class Presences {
    /** A temporary key that is there. */
    record Member(long token, String value) {}

    private static final class Presence {
        final String prefix;
        final boolean isObserver;
        boolean isTold;

        /** Until its first snapshot, what it was told before. */
        Map<String, Member> told;

        Presence(String prefix, boolean isObserver, Map<String, Member> told) {
            this.prefix = prefix;
            this.isObserver = isObserver;
            this.told = told;
        }
    }

    private static final class Prefix {
        final List<Object> by = new ArrayList<>();

        Map<String, Member> members = new HashMap<>();

        /** The snapshot that is being taken. */
        Map<String, Member> next = new HashMap<>();

        /** Of that snapshot: replies to an earlier one say nothing of this one. */
        int number;

        boolean isLive;

        Map<String, Member> current() {
            return isLive ? members : next;
        }
    }

    private final Core core;
    private final Map<Object, Presence> presences = new LinkedHashMap<>();
    private final Map<String, Prefix> prefixes = new LinkedHashMap<>();

    Presences(Core core) {
        this.core = core;
    }

    boolean isEmpty() {
        return presences.isEmpty();
    }

    Stream<String> prefixes() {
        return prefixes.keySet().stream();
    }

    /**
     * {@code isObserver}: tells the leader of the election of that name, and nothing of longer
     * names (P-ELECT-3). {@code told}: the members that it was told of at another node, of which it
     * is told the difference (P-CLUSTER-7).
     */
    void watch(Object id, String name, boolean isObserver, Map<String, Member> told) {
        if (core.isClosed) {
            core.tell(new Event.Ended(id, Problem.CLOSED));
            return;
        }
        if (core.settings.isCluster() && !Slot.hasTag(name)) {
            core.tell(new Event.Ended(id, Problem.CROSSSLOT)); // P-CLUSTER-2
            return;
        }
        presences.put(id, new Presence(name, isObserver, told));
        core.link.need();
        Prefix prefix = prefixes.get(name);
        if (prefix == null) {
            prefix = new Prefix();
            prefix.by.add(id);
            prefixes.put(name, prefix);
            send(name, null);
        } else {
            prefix.by.add(id);
            if (prefix.isLive) {
                tellDifference(id, prefix.members, prefix.members);
            }
        }
    }

    void end(Object id) {
        Presence presence = presences.remove(id);
        if (presence == null) {
            return;
        }
        Prefix prefix = prefixes.get(presence.prefix);
        prefix.by.remove(id);
        if (prefix.by.isEmpty()) {
            prefixes.remove(presence.prefix);
            if (core.link.isUp()) {
                core.link.send(List.of("UNWATCHTP", presence.prefix), reply -> {});
            }
        }
    }

    void end(Problem problem) {
        List<Object> ended = List.copyOf(presences.keySet());
        presences.clear();
        prefixes.clear();
        ended.forEach(id -> core.tell(new Event.Ended(id, problem)));
    }

    /** P-PRES-3. */
    void anew() {
        List.copyOf(prefixes.keySet()).forEach(name -> send(name, null));
    }

    /** P-PRES-1: a snapshot, page by page. */
    private void send(String name, String after) {
        Prefix prefix = prefixes.get(name);
        if (prefix == null || !core.link.isUp()) {
            return;
        }
        List<String> words = List.of("WATCHTP", name);
        if (after == null) {
            prefix.number++;
            prefix.isLive = false;
        } else {
            words = List.of("WATCHTP", name, "AFTER", after);
        }
        int number = prefix.number;
        core.link.send(words, reply -> answered(name, prefix, number, after, reply));
    }

    private void answered(String name, Prefix prefix, int number, String after, Object reply) {
        if (prefixes.get(name) != prefix || prefix.number != number) {
            return;
        }
        if (Codes.isMomentary(reply) || Codes.isUnwritable(reply) || Codes.isOnItsWay(reply)) {
            core.link.tryAgain(() -> send(name, null));
        } else if (reply instanceof ServerError error) {
            prefixes.remove(name);
            for (Object id : prefix.by) {
                presences.remove(id);
                core.tell(new Event.Ended(id, Problem.refused(error)));
            }
        } else {
            if (after == null) {
                prefix.next.clear(); // What was pushed before the first page is of a former watch.
            }
            page(name, prefix, (List<?>) reply);
        }
    }

    private void page(String name, Prefix prefix, List<?> page) {
        for (Object each : (List<?>) page.get(1)) {
            List<?> entry = (List<?>) each;
            prefix.next.put(
                    (String) entry.get(0), new Member((Long) entry.get(1), (String) entry.get(2)));
        }
        if (page.get(0) instanceof String after && !after.isEmpty()) {
            send(name, after);
            return;
        }
        Map<String, Member> old = prefix.members;
        prefix.members = prefix.next;
        prefix.next = new HashMap<>();
        prefix.isLive = true;
        prefix.by.forEach(id -> tellDifference(id, old, prefix.members));
    }

    /** Of a first snapshot, to what it was told before. */
    private void tellDifference(Object id, Map<String, Member> former, Map<String, Member> now) {
        Presence presence = presences.get(id);
        Map<String, Member> old = presence.told == null ? former : presence.told;
        presence.told = null;
        TreeSet<String> keys = new TreeSet<>(old.keySet());
        keys.addAll(now.keySet());
        for (String key : keys) {
            Member before = old.get(key);
            Member after = now.get(key);
            if (!Objects.equals(before, after)) {
                MemberChange change =
                        before == null
                                ? MemberChange.ADD
                                : after == null ? MemberChange.DEL : MemberChange.SET;
                tell(id, key, change, after, "unknown");
            }
        }
        if (presence.isObserver && !presence.isTold) {
            tellLeader(id, presence, null);
        }
    }

    private void tell(Object id, String key, MemberChange change, Member member, String reason) {
        Presence presence = presences.get(id);
        if (!presence.isObserver) {
            long token = member == null ? 0 : member.token;
            String value = member == null ? null : member.value;
            core.tell(
                    new Event.Member(
                            id, key, change, token, value, member == null ? reason : null));
        } else if (key.equals(presence.prefix)) {
            tellLeader(id, presence, member);
        }
    }

    private void tellLeader(Object id, Presence presence, Member leader) {
        presence.isTold = true;
        core.tell(
                new Event.Leader(
                        id,
                        leader == null ? null : leader.token,
                        leader == null ? null : leader.value));
    }

    void pushed(String key, String text) {
        String[] parts = text.split(" ", 3);
        switch (parts[0]) {
            case "ADD" -> changed(key, MemberChange.ADD, parts);
            case "SET" -> changed(key, MemberChange.SET, parts);
            case "DEL" -> changed(key, MemberChange.DEL, parts);
            case "FLUSHED" -> flushed(key);
            case "END" -> send(key, null);
            default -> {}
        }
    }

    /** P-PRES-2: one push is for all prefixes that the key begins with. */
    private void changed(String key, MemberChange change, String[] parts) {
        String rest = parts.length > 2 ? parts[2] : null;
        Member member =
                change == MemberChange.DEL ? null : new Member(Long.parseLong(parts[1]), rest);
        prefixes.forEach(
                (name, prefix) -> {
                    if (!key.startsWith(name)) {
                        return;
                    }
                    if (member == null) {
                        prefix.current().remove(key);
                    } else {
                        prefix.current().put(key, member);
                    }
                    if (prefix.isLive) {
                        prefix.by.forEach(
                                id ->
                                        tell(
                                                id,
                                                key,
                                                change,
                                                member,
                                                rest == null ? "unknown" : rest));
                    }
                });
    }

    /** P-PRES-4. */
    private void flushed(String name) {
        Prefix prefix = prefixes.get(name);
        if (prefix == null) {
            return;
        }
        prefix.next.clear();
        TreeSet<String> gone = new TreeSet<>(prefix.members.keySet());
        if (prefix.isLive) {
            prefix.members.clear();
            for (String key : gone) {
                prefix.by.forEach(id -> tell(id, key, MemberChange.DEL, null, "flushed"));
            }
        }
    }
}
