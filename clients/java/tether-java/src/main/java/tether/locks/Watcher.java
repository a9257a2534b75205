package tether.locks;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.function.Consumer;

/** A watch, a presence or an observer: from the core's events to the listener's. */
abstract class Watcher<S> implements Subscription {
    private final ClientContext context;
    private final Feed<S> feed;
    private final CompletableFuture<Void> ended = new CompletableFuture<>();
    private final Cluster cluster;
    private final List<String> keys;

    /** Where it watches. */
    private Node node;

    private final Moves moves = new Moves();

    Watcher(ClientContext context, Cluster cluster, List<String> keys) {
        this.context = context;
        this.cluster = cluster;
        this.keys = keys;
        feed = new Feed<>(context.executor, this::tell);
    }

    abstract void begin(Core core);

    abstract void end(Core core);

    /** By the loop's thread. */
    abstract void changed(Event event);

    abstract void tell(String key, S before, S after, String reason);

    final void put(String key, S state, String reason) {
        feed.put(key, state, reason);
    }

    final Watcher<S> begin() {
        cluster.loop.post(() -> watch(cluster.node(keys)));
        return this;
    }

    private void watch(Node at) {
        node = at;
        node.act(this::begin);
    }

    final void event(Event event) {
        if (event instanceof Event.Ended over) {
            Cluster.Redirection to = cluster.redirection(over.problem(), node);
            if (moves.follow(to)) {
                watch(to.node());
                return;
            }
            feed.last(() -> ended.completeExceptionally(TetherException.of(over.problem())));
        } else {
            changed(event);
        }
    }

    @Override
    public void close() {
        if (ended.complete(null)) {
            cluster.loop.post(() -> node.act(this::end));
        }
    }

    @Override
    public CompletionStage<Void> ended() {
        return context.outside(ended);
    }

    /** Of keys. */
    static final class OfKeys extends Watcher<Boolean> {
        private final List<String> keys;
        private final Consumer<? super KeyEvent> listener;

        OfKeys(
                ClientContext context,
                Cluster cluster,
                List<String> keys,
                Consumer<? super KeyEvent> listener) {
            super(context, cluster, keys);
            this.keys = keys;
            this.listener = listener;
        }

        @Override
        void begin(Core core) {
            core.watches.watch(this, keys);
        }

        @Override
        void end(Core core) {
            core.watches.unwatch(this);
        }

        @Override
        void changed(Event event) {
            if (event instanceof Event.Watched watched) {
                boolean isThere =
                        watched.state() == Event.KeyState.EXISTS
                                || watched.state() == Event.KeyState.ADDED;
                put(watched.key(), isThere, null);
            }
        }

        @Override
        void tell(String key, Boolean before, Boolean after, String reason) {
            if (after.equals(before)) {
                return; // It was told at another node (P-CLUSTER-7).
            }
            KeyEvent.Kind kind;
            if (before == null) {
                kind = after ? KeyEvent.Kind.EXISTS : KeyEvent.Kind.MISSING;
            } else {
                kind = after ? KeyEvent.Kind.ADDED : KeyEvent.Kind.DELETED;
            }
            listener.accept(new KeyEvent(Resp.textOf(key), kind));
        }
    }

    /** Of a prefix. */
    static final class OfPrefix extends Watcher<Leader> {
        private final String prefix;
        private final Consumer<? super MemberEvent> listener;

        /** For the next node to tell the difference only (P-CLUSTER-7). By the loop's thread. */
        private final Map<String, Presences.Member> told = new HashMap<>();

        OfPrefix(
                ClientContext context,
                Cluster cluster,
                String prefix,
                Consumer<? super MemberEvent> listener) {
            super(context, cluster, List.of(prefix));
            this.prefix = prefix;
            this.listener = listener;
        }

        @Override
        void begin(Core core) {
            core.presences.watch(this, prefix, false, Map.copyOf(told));
        }

        @Override
        void end(Core core) {
            core.presences.end(this);
        }

        @Override
        void changed(Event event) {
            if (event instanceof Event.Member member) {
                boolean isGone = member.change() == Event.MemberChange.DEL;
                if (isGone) {
                    told.remove(member.key());
                } else {
                    told.put(member.key(), new Presences.Member(member.token(), member.value()));
                }
                put(
                        member.key(),
                        isGone ? null : new Leader(member.token(), member.value()),
                        member.reason());
            }
        }

        @Override
        void tell(String key, Leader before, Leader after, String reason) {
            if (Objects.equals(before, after)) {
                return; // It was told at another node (P-CLUSTER-7).
            }
            String name = Resp.textOf(key);
            if (after == null) {
                listener.accept(new MemberEvent(name, MemberEvent.Kind.REMOVED, 0, null, reason));
            } else {
                MemberEvent.Kind kind =
                        before == null ? MemberEvent.Kind.ADDED : MemberEvent.Kind.CHANGED;
                listener.accept(
                        new MemberEvent(
                                name, kind, after.token(), Resp.textOf(after.value()), null));
            }
        }
    }

    /** Of an election. */
    static final class OfElection extends Watcher<Leader> {
        private final String name;
        private final Consumer<? super Optional<Leader>> listener;

        /** Null: nothing yet. */
        private Optional<Leader> told;

        OfElection(
                ClientContext context,
                Cluster cluster,
                String name,
                Consumer<? super Optional<Leader>> listener) {
            super(context, cluster, List.of(name));
            this.name = name;
            this.listener = listener;
        }

        @Override
        void begin(Core core) {
            core.presences.watch(this, name, true, Map.of());
        }

        @Override
        void end(Core core) {
            core.presences.end(this);
        }

        @Override
        void changed(Event event) {
            if (event instanceof Event.Leader leader) {
                put(
                        name,
                        leader.token() == null ? null : new Leader(leader.token(), leader.value()),
                        null);
            }
        }

        @Override
        void tell(String key, Leader before, Leader after, String reason) {
            Optional<Leader> now =
                    Optional.ofNullable(after)
                            .map(leader -> new Leader(leader.token(), Resp.textOf(leader.value())));
            if (!now.equals(told)) {
                told = now;
                listener.accept(now);
            }
        }
    }
}
