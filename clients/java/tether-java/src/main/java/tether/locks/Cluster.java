package tether.locks;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The nodes of a client, and which of them has a key; without a cluster one for all. Run by the loop's thread. */
final class Cluster {
    /** Where a server sent a request to. */
    record Redirection(Node node, boolean isAsk) {}

    /** P-CLUSTER-3. */
    static final int MOST_REDIRECTIONS = 5;

    private static final Logger LOG = LoggerFactory.getLogger(Cluster.class);

    final Loop loop = new Loop("tether-loop");
    private final ClientContext context;
    private final Settings settings;
    private final Node.Addresses seeds;
    private final Greeter greeter;
    private final List<Node> nodes = new ArrayList<>();
    private final Map<Integer, Node> bySlot = new HashMap<>();

    /** All servers of the cluster that were ever named. Read by threads that connect. */
    private final Set<Address> known = ConcurrentHashMap.newKeySet();

    private final CompletableFuture<Void> closed = new CompletableFuture<>();
    private boolean isClosed;

    Cluster(ClientContext context, Settings settings, Node.Addresses seeds, Greeter greeter) {
        this.context = context;
        this.settings = settings;
        this.seeds = seeds;
        this.greeter = greeter;
        loop.start();
    }

    /** The node for these keys, of which those in one request are in one slot. */
    Node node(List<String> keys) {
        int slot = settings.isCluster() && !keys.isEmpty() ? Slot.of(keys.get(0)) : 0;
        Node node = bySlot.get(slot);
        if (node == null) {
            node = nodes.isEmpty() ? newNode(slot, null) : nodes.get(0);
            bySlot.put(slot, node);
        }
        return node;
    }

    /** {@code place}: null where nobody has named it yet. */
    private Node newNode(int slot, Address place) {
        Node.Addresses addresses = settings.isCluster() ? within -> masters(slot, place, within) : seeds;
        Node node = new Node(loop, context.clock, settings, addresses, greeter, new Told());
        nodes.add(node);
        loop.add(node);
        if (isClosed) {
            node.act(Core::close);
        }
        return node;
    }

    /** Where {@code MOVED} or {@code ASK} sends a request that this node refused; null: it sends it nowhere. */
    Redirection redirection(Problem problem, Node from) {
        String[] words = problem.text().split(" ");
        boolean isAsk = words[0].equals("ASK");
        Address at = from.address();
        if (!settings.isCluster() || !isAsk && !words[0].equals("MOVED") || words.length < 3 || at == null) {
            return null;
        }
        int slot = Integer.parseInt(words[1]);
        int colon = words[2].lastIndexOf(':');
        String host = words[2].substring(0, colon);
        Address place = at.at(host.isEmpty() ? at.host() : host, Integer.parseInt(words[2].substring(colon + 1)));
        known.add(place);
        Node node = nodes.stream()
                .filter(each -> place.equals(each.address()) || place.equals(each.expected()))
                .findFirst()
                .orElseGet(() -> newNode(slot, place).expect(place));
        if (!isAsk) {
            bySlot.put(slot, node);
        }
        return new Redirection(node, isAsk);
    }

    /** Where the slot is now: after a failover at another server (P-CLUSTER-6). Asked by a thread that connects. */
    private List<Address> masters(int slot, Address place, double within) throws Greeter.RefusedException {
        Set<Address> asked = new LinkedHashSet<>();
        if (place != null) {
            asked.add(place);
        }
        asked.addAll(known);
        asked.addAll(seeds.find(within));
        for (Address each : asked) {
            Address master = master(each, slot, within / asked.size());
            if (master != null) {
                return List.of(master); // And no other: it would not have the session.
            }
        }
        return place == null ? List.copyOf(asked) : List.of(place);
    }

    private Address master(Address asked, int slot, double within) {
        try (Greeter.Greeted greeted = greeter.greetAny(asked, within)) {
            greeted.wire().write(Resp.encode(List.of(List.of("CLUSTER", "SLOTS"))));
            if (!(greeted.resp().read() instanceof List<?> ranges)) {
                return null;
            }
            Address found = null;
            for (Object each : ranges) {
                List<?> range = (List<?>) each;
                List<?> server = (List<?>) range.get(2);
                String host = (String) server.get(0);
                boolean isNamed = host != null && !host.isEmpty();
                Address master = asked.at(isNamed ? host : asked.host(), ((Long) server.get(1)).intValue());
                known.add(master);
                if ((Long) range.get(0) <= slot && slot <= (Long) range.get(1)) {
                    found = master;
                }
            }
            return found;
        } catch (IOException | Greeter.RefusedException | RuntimeException error) {
            LOG.debug("{} does not say where slot {} is: {}", asked, slot, error.toString());
            return null;
        }
    }

    /** Completes when nothing more is to be done. */
    CompletableFuture<Void> close() {
        loop.post(() -> {
            isClosed = true;
            nodes.forEach(node -> node.act(Core::close));
            context.closed();
            endIfOver();
        });
        return closed;
    }

    private void endIfOver() {
        if (nodes.stream().allMatch(Node::isOver)) {
            loop.end();
            closed.complete(null);
        }
    }

    private final class Told implements Node.Listener {
        @Override
        public void connected(Address address) {
            context.observe(observer -> observer.connected(address.toString()));
        }

        @Override
        public void disconnected(Problem problem) {
            String why = problem == null ? "ended" : problem.text();
            context.observe(observer -> observer.disconnected(why));
        }

        @Override
        public void whenTold(Runnable action) {
            context.whenTold(action);
        }

        @Override
        public void over() {
            endIfOver();
        }

        @Override
        public void event(Event event) {
            if (event instanceof Event.NoBootClock) {
                LOG.warn("this system has no clock that counts the time in suspend: the fence does not count it");
            } else if (event instanceof Event.Watched watched) {
                ((Watcher<?>) watched.id()).event(event);
            } else if (event instanceof Event.Member member) {
                ((Watcher<?>) member.id()).event(event);
            } else if (event instanceof Event.Leader leader) {
                ((Watcher<?>) leader.id()).event(event);
            } else if (event instanceof Event.Ended ended) {
                ((Watcher<?>) ended.id()).event(event);
            }
        }
    }
}
