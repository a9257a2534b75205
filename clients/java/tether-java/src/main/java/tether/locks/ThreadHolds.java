package tether.locks;

import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/** What each thread holds by {@link ThreadLock}, and how often. */
final class ThreadHolds {
    static final class Held {
        final Hold hold;
        int count = 1;

        Held(Hold hold) {
            this.hold = hold;
        }
    }

    private final ThreadLocal<Map<String, Held>> held = ThreadLocal.withInitial(HashMap::new);

    Map<String, Held> ofThread() {
        return held.get();
    }

    Optional<Hold> get(String name) {
        return Optional.ofNullable(held.get().get(name)).map(each -> each.hold);
    }

    /** A thread that holds nothing keeps nothing. */
    void tidy() {
        if (held.get().isEmpty()) {
            held.remove();
        }
    }
}
