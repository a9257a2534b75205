package tether.locks;

import java.util.Map;

/** Cores that are connected. */
final class Cores {
    private Cores() {}

    /** Its session has begun. */
    static Core withSession(boolean isCluster) {
        Settings settings =
                new Settings(9000.0, 0, null, isCluster, Settings.BootClock.EXACT, () -> 0);
        Core core = new Core(new Stamp(0, 0), settings);
        core.open();
        core.link.connected(false);
        core.link.received(Map.of("role", "master", "pushes", 1L, "peer-timeout-ms", 8000L));
        core.link.received("secret");
        core.take();
        return core;
    }
}
