package tether.locks;

/** The slots of a cluster (P-CLUSTER-2). */
final class Slot {
    /** No slot in particular. */
    static final int NONE = -1;

    private static final int[] TABLE = new int[256];

    static {
        for (int index = 0; index < TABLE.length; index++) {
            int crc = index << 8;
            for (int bit = 0; bit < 8; bit++) {
                crc = (crc & 0x8000) != 0 ? crc << 1 ^ 0x1021 : crc << 1;
            }
            TABLE[index] = crc & 0xFFFF;
        }
    }

    private Slot() {}

    /** Whether all names that begin with this are in one slot. */
    static boolean hasTag(String prefix) {
        int from = prefix.indexOf('{');
        return from >= 0 && prefix.indexOf('}', from + 1) > from + 1;
    }

    /** CRC16 (XMODEM) of the key's hash tag, or of all of it. */
    static int of(String key) {
        int from = key.indexOf('{');
        if (from >= 0) {
            int to = key.indexOf('}', from + 1);
            if (to > from + 1) {
                key = key.substring(from + 1, to);
            }
        }
        int crc = 0;
        for (int at = 0; at < key.length(); at++) {
            crc = (crc << 8 ^ TABLE[(crc >> 8 ^ key.charAt(at)) & 0xFF]) & 0xFFFF;
        }
        return crc % 16384;
    }
}
