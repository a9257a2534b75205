package tether.spring;

import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;

/**
 * What of the client is not in {@code spring.data.redis.*}.
 *
 * @param name of the connection; default: {@code tether:<host>:<pid>:<program>}
 * @param grace of the session; default: no session
 * @param stopWithin how long work goes on after a loss; default: 0
 */
@ConfigurationProperties("tether")
public record TetherProperties(String name, Duration grace, Duration stopWithin) {}
