# The sum over all test runs in what is read, each of which ends with a line in cargo's form: "N passed, N failed".
/^test result: / {
    for (i = 2; i <= NF; i++) {
        if ($i ~ /^passed;?$/) passed += $(i - 1)
        if ($i ~ /^failed;?$/) failed += $(i - 1)
    }
}
END { printf "%d passed, %d failed\n", passed, failed }
