package tether.spring;

import org.springframework.boot.health.contributor.Health;
import org.springframework.boot.health.contributor.HealthIndicator;
import tether.locks.TetherObserver;

/**
 * Up while the client's connection stands, down while it cannot connect. Unknown before it is
 * needed, and after one that stood has ended: a client that needs none connects to none.
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
        Health.Builder now = why.equals("ended") ? Health.unknown() : Health.down();
        health = now.withDetail("why", why).build();
    }
}
