package tether.locks;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The nodes of a client, and which of them has a key. */
final class Cluster {
    private static final Logger LOG = LoggerFactory.getLogger(Cluster.class);

    private final ClientContext context;
    private final Loop loop = new Loop("tether-loop");
    private final Node first;
    private final CompletableFuture<Void> closed = new CompletableFuture<>();

    Cluster(ClientContext context, Settings settings, Node.Addresses addresses, Greeter greeter) {
        this.context = context;
        first = new Node(loop, context.clock, settings, addresses, greeter, new Told());
        loop.post(() -> loop.add(first));
        loop.start();
    }

    Node node(List<String> keys) {
        return first;
    }

    /** Completes when nothing more is to be done. */
    CompletableFuture<Void> close() {
        loop.post(() -> {
            first.act(Core::close);
            context.closed();
        });
        return closed;
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
