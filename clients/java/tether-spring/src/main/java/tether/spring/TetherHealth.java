package tether.spring;

import org.springframework.boot.health.contributor.Health;
import org.springframework.boot.health.contributor.HealthIndicator;
import tether.locks.TetherObserver;

/**
 * Up while the client's connection stands, unknown before it is needed, down while it cannot
 * connect.
 */
final class TetherHealth implements HealthIndicator, TetherObserver {
    private volatile Health health = Health.unknown().build();

    @Override
    public Health health() {
        return health;
    }

    @Override
    public void connected(String server) {
        health = Health.up().withDetail("server", server).build();
    }

    @Override
    public void disconnected(String why) {
        health = Health.down().withDetail("why", why).build();
    }
}
