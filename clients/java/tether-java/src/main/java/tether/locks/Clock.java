package tether.locks;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.locks.ReentrantLock;
import tether.locks.Settings.BootClock;

/**
 * Reads both clocks of P-FENCE-3. The one that runs on in suspend is {@code /proc/uptime}: Java has
 * no other.
 */
final class Clock {
    static final Clock SYSTEM = new Clock();

    private static final String UPTIME = "/proc/uptime";

    // A channel would be closed by the interrupt of a thread that reads it.
    private final RandomAccessFile uptime;
    private final ReentrantLock lock = new ReentrantLock();
    private final byte[] buffer = new byte[64];

    private Clock() {
        RandomAccessFile file = null;
        try {
            file = new RandomAccessFile(UPTIME, "r");
        } catch (IOException | SecurityException missing) {
            // No Linux: P-FENCE-5 tells the user.
        }
        uptime = file;
    }

    BootClock boot() {
        return uptime == null ? BootClock.NONE : BootClock.UPTIME;
    }

    Stamp now() {
        double boot = uptime == null ? 0 : readUptime();
        return new Stamp(System.nanoTime() / 1e6, boot);
    }

    private double readUptime() {
        lock.lock();
        try {
            uptime.seek(0);
            int size = uptime.read(buffer);
            String text = new String(buffer, 0, size, StandardCharsets.US_ASCII);
            return Double.parseDouble(text.substring(0, text.indexOf(' '))) * 1000;
        } catch (IOException error) {
            throw new IllegalStateException(UPTIME + " cannot be read", error);
        } finally {
            lock.unlock();
        }
    }
}
