package tether.spring;

import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;

/**
 * What of the client is not in {@code spring.data.redis.*}.
 *
 * @param name of the connection; default: {@code tether:<host>:<pid>:<program>}
 * @param grace of the session; default: no session
 * @param stopWithin how long work goes on after a loss; default: 0
 * @param leader null: no candidate
 */
@ConfigurationProperties("tether")
public record TetherProperties(String name, Duration grace, Duration stopWithin, Leader leader) {
    /**
     * A candidate of an election, whose events Spring Integration has.
     *
     * @param role what it is a candidate for
     * @param id what observers are told of it; default: a random one
     */
    public record Leader(String role, String id) {}
}
