package tether.spring;

import java.util.List;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * Where the servers are: what of {@code spring.data.redis.*} concerns a client of its own.
 *
 * @param url instead of host, port, credentials and TLS
 * @param host of the server
 * @param port of the server
 * @param username null: the default user
 * @param password null: none
 * @param database its number
 * @param ssl whether to use TLS
 * @param sentinel null: no Sentinels
 * @param cluster null: no cluster
 */
@ConfigurationProperties("spring.data.redis")
public record RedisProperties(
        String url,
        @DefaultValue("localhost") String host,
        @DefaultValue("6379") int port,
        String username,
        String password,
        @DefaultValue("0") int database,
        @DefaultValue Ssl ssl,
        Sentinel sentinel,
        Cluster cluster) {
    /**
     * TLS.
     *
     * @param enabled whether to use it; default: if there is a bundle
     * @param bundle with the trusted certificates; null: the JVM's
     */
    public record Ssl(Boolean enabled, String bundle) {
        boolean isUsed() {
            return enabled == null ? bundle != null : enabled;
        }
    }

    /**
     * Sentinels.
     *
     * @param master the name that they have for the master
     * @param nodes where they are, as {@code host:port}
     * @param username of the Sentinels; null: the default user
     * @param password of the Sentinels; null: none
     */
    public record Sentinel(String master, List<String> nodes, String username, String password) {}

    /**
     * A cluster.
     *
     * @param nodes some of its nodes, as {@code host:port}
     */
    public record Cluster(List<String> nodes) {}
}
