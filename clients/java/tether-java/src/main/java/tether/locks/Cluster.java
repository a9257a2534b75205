package tether.locks;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadFactory;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The nodes of a client, and which of them has a key; without a cluster one for all. Run by the
 * loop's thread.
 */
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
    private final ThreadFactory threads;
    private final List<Node> nodes = new ArrayList<>();
    private final Map<Integer, Node> bySlot = new HashMap<>();
    private final Map<Node, Place> places = new HashMap<>();

    /** All servers of the cluster that were ever named. Read by threads that connect. */
    private final Set<Address> known = ConcurrentHashMap.newKeySet();

    private final CompletableFuture<Void> closed = new CompletableFuture<>();
    private boolean isClosed;

    Cluster(ClientContext context, Settings settings, Node.Addresses seeds, Greeter greeter) {
        this(context, settings, seeds, greeter, Thread::new);
    }

    /** {@code threads}: makes those of connections. */
    Cluster(
            ClientContext context,
            Settings settings,
            Node.Addresses seeds,
            Greeter greeter,
            ThreadFactory threads) {
        this.context = context;
        this.settings = settings;
        this.seeds = seeds;
        this.greeter = greeter;
        this.threads = threads;
        loop.start();
    }

    /** The node for these keys, of which those in one request are in one slot. */
    Node node(List<String> keys) {
        int slot = settings.isCluster() && !keys.isEmpty() ? Slot.of(keys.get(0)) : 0;
        Node node = bySlot.get(slot);
        if (node == null) {
            node = nodes.isEmpty() ? newNode(new Place(slot, null)) : nodes.get(0);
            bySlot.put(slot, node);
        }
        return node;
    }

    private Node newNode(Place place) {
        Node.Addresses addresses = settings.isCluster() ? place : seeds;
        Node node =
                new Node(loop, context.clock, settings, addresses, greeter, threads, new Told());
        places.put(node, place);
        nodes.add(node);
        loop.add(node);
        if (isClosed) {
            node.act(Core::close);
        }
        return node;
    }

    /**
     * Where {@code MOVED} or {@code ASK} sends a request that this node refused; null: it sends it
     * nowhere.
     */
    Redirection redirection(Problem problem, Node from) {
        String[] words = problem.text().split(" ");
        boolean isAsk = words[0].equals("ASK");
        Address at = from.address();
        if (!settings.isCluster()
                || !isAsk && !words[0].equals("MOVED")
                || words.length < 3
                || at == null) {
            return null;
        }
        int slot = Integer.parseInt(words[1]);
        int colon = words[2].lastIndexOf(':');
        String host = words[2].substring(0, colon);
        Address place =
                at.at(
                        host.isEmpty() ? at.host() : host,
                        Integer.parseInt(words[2].substring(colon + 1)));
        known.add(place);
        Node node =
                nodes.stream()
                        .filter(
                                each ->
                                        place.equals(each.address())
                                                || place.equals(each.expected()))
                        .findFirst()
                        .orElseGet(() -> newNode(new Place(Slot.NONE, place)).expect(place));
        if (!isAsk) {
            bySlot.put(slot, node);
            places.get(node).slot = slot;
        }
        return new Redirection(node, isAsk);
    }

    /**
     * Where a node is: at the same server as long as that is a master, after a failover where the
     * slot of its holds is.
     */
    private final class Place implements Node.Addresses {
        /** One that it had; or none yet. It counts where nothing is wanted of the node. */
        volatile int slot;

        /** Where it was last; null: nowhere yet. */
        private volatile Address last;

        Place(int slot, Address last) {
            this.slot = slot;
            this.last = last;
        }

        /** P-CLUSTER-6. No further address is tried: it would not have the session. */
        @Override
        public List<Address> find(double within, int wanted) throws Greeter.RefusedException {
            int slot = wanted == Slot.NONE ? this.slot : wanted;
            Set<Address> asked = new LinkedHashSet<>();
            if (last != null) {
                asked.add(last);
            }
            asked.addAll(known);
            asked.addAll(seeds.find(within, slot));
            for (Address each : asked) {
                Map<Integer, Address> masters = masters(each, within / asked.size());
                known.addAll(masters.values());
                if (last == null || !masters.containsValue(last)) {
                    Map.Entry<Integer, Address> found =
                            new TreeMap<>(masters).ceilingEntry(Math.max(0, slot));
                    last = found == null || slot == Slot.NONE ? last : found.getValue();
                }
                if (!masters.isEmpty() && last != null) {
                    return List.of(last);
                }
            }
            return last == null ? List.copyOf(asked) : List.of(last);
        }

        /**
         * The masters by the last slot of each of their ranges; none if that server does not say.
         */
        private Map<Integer, Address> masters(Address asked, double within) {
            Map<Integer, Address> masters = new HashMap<>();
            try (Greeter.Greeted greeted = greeter.greetAny(asked, within)) {
                greeted.wire().write(Resp.encode(List.of(List.of("CLUSTER", "SLOTS"))));
                if (greeted.resp().read() instanceof List<?> ranges) {
                    for (Object each : ranges) {
                        List<?> range = (List<?>) each;
                        List<?> server = (List<?>) range.get(2);
                        boolean isNamed = server.get(0) instanceof String name && !name.isEmpty();
                        String host = isNamed ? (String) server.get(0) : asked.host();
                        int port = ((Long) server.get(1)).intValue();
                        masters.put(((Long) range.get(1)).intValue(), asked.at(host, port));
                    }
                }
            } catch (IOException | Greeter.RefusedException | RuntimeException error) {
                LOG.debug("{} does not name the masters: {}", asked, error.toString());
            }
            return masters;
        }
    }

    /** Completes when nothing more is to be done. */
    CompletableFuture<Void> close() {
        loop.post(
                () -> {
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
                LOG.warn(
                        "this system has no clock that counts the time in suspend: the fence does not count it");
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
