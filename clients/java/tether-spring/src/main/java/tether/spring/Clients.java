package tether.spring;

import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.Function;
import javax.net.ssl.SSLContext;
import tether.locks.Failure;
import tether.locks.TetherLocks;
import tether.locks.TetherLocksBuilder;
import tether.locks.TetherObserver;

/** Makes a client from properties. */
final class Clients {
    private Clients() {}

    static TetherLocks of(
            RedisProperties redis,
            TetherProperties tether,
            Function<String, SSLContext> bundles,
            List<TetherObserver> observers) {
        TetherLocksBuilder builder;
        if (redis.sentinel() != null) {
            RedisProperties.Sentinel sentinel = redis.sentinel();
            String who = who(sentinel.username(), sentinel.password());
            builder =
                    TetherLocks.builder(uri(redis, redis.host() + ":" + redis.port()))
                            .sentinels(
                                    sentinel.master(),
                                    sentinel.nodes().stream()
                                            .map(node -> scheme(redis) + who + node)
                                            .toArray(String[]::new));
        } else if (redis.cluster() != null) {
            List<String> nodes = redis.cluster().nodes();
            builder =
                    TetherLocks.builder(uri(redis, nodes.get(0)))
                            .cluster()
                            .others(
                                    nodes.stream()
                                            .skip(1)
                                            .map(node -> uri(redis, node))
                                            .toArray(String[]::new));
        } else {
            builder =
                    TetherLocks.builder(
                            redis.url() != null
                                    ? url(redis)
                                    : uri(redis, redis.host() + ":" + redis.port()));
        }
        if (redis.ssl().isUsed() && redis.ssl().bundle() != null) {
            builder.tls(bundles.apply(redis.ssl().bundle()));
        }
        if (tether.name() != null) {
            builder.name(tether.name());
        }
        if (tether.grace() != null) {
            builder.grace(tether.grace());
        }
        if (tether.stopWithin() != null) {
            builder.stopWithin(tether.stopWithin());
        }
        return builder.observer(new All(observers)).build();
    }

    /** To Spring Boot, who is named alone is a password; to tether-java, a user. */
    private static String url(RedisProperties redis) {
        return redis.url()
                .replaceFirst("^redis://", scheme(redis))
                .replaceFirst("^(rediss?://)([^:@/?#]+@)", "$1:$2");
    }

    private static String uri(RedisProperties redis, String place) {
        String database = redis.cluster() == null ? "/" + redis.database() : "";
        return scheme(redis) + who(redis.username(), redis.password()) + place + database;
    }

    private static String scheme(RedisProperties redis) {
        return redis.ssl().isUsed() ? "rediss://" : "redis://";
    }

    private static String who(String user, String password) {
        return password == null
                ? ""
                : encoded(user == null ? "" : user) + ":" + encoded(password) + "@";
    }

    private static String encoded(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }

    /** Tells each of these. */
    private record All(List<TetherObserver> observers) implements TetherObserver {
        private void each(Consumer<TetherObserver> what) {
            observers.forEach(what);
        }

        @Override
        public void connected(String server) {
            each(one -> one.connected(server));
        }

        @Override
        public void disconnected(String why) {
            each(one -> one.disconnected(why));
        }

        @Override
        public void granted(List<String> keys, long token, Duration waited) {
            each(one -> one.granted(keys, token, waited));
        }

        @Override
        public void refused(List<String> keys, Failure failure) {
            each(one -> one.refused(keys, failure));
        }

        @Override
        public void lost(List<String> keys, long token, String reason) {
            each(one -> one.lost(keys, token, reason));
        }

        @Override
        public void released(List<String> keys, long token) {
            each(one -> one.released(keys, token));
        }
    }
}
