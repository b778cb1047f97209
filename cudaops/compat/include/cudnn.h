/* cudnn.h for gorgonia.org/cu on cuDNN 8 and 9.
 *
 * gorgonia.org/cu v0.9.6 wraps types and functions that cuDNN 8 deprecated and cuDNN 9 removed. Its Go code refers to all of them, so
 * without them it does not compile, though Gorgonia itself calls none. This header gives their names back on cuDNN 9, as functions
 * that answer "not supported": a program that does call one gets that as an error. On cuDNN 8 it changes nothing.
 *
 * It works by standing first on the include path: #include <cudnn.h> finds this file, and #include_next goes on to cuDNN's own.
 */
#ifndef STHENO_COMPAT_CUDNN_H
#define STHENO_COMPAT_CUDNN_H

/* cuDNN's own cudnn.h: the next one on the include path. */
#include_next <cudnn.h>

#if CUDNN_MAJOR >= 9

/* A choice of algorithm as a value (cu: AlgorithmDescriptor). cu's algorithm.c fills the union's members by these names. */
typedef struct cudnnAlgorithmUnionStruct {
    union {
        cudnnConvolutionFwdAlgo_t convFwdAlgo;
        cudnnConvolutionBwdFilterAlgo_t convBwdFilterAlgo;
        cudnnConvolutionBwdDataAlgo_t convBwdDataAlgo;
        cudnnRNNAlgo_t RNNAlgo;
        cudnnCTCLossAlgo_t CTCLossAlgo;
    } algo;
} cudnnAlgorithm_t;

/* Its descriptor: an opaque pointer that is never made, so never freed either. */
typedef struct cudnnAlgorithmStruct *cudnnAlgorithmDescriptor_t;

static inline cudnnStatus_t cudnnCreateAlgorithmDescriptor(cudnnAlgorithmDescriptor_t *algoDesc) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
static inline cudnnStatus_t cudnnSetAlgorithmDescriptor(cudnnAlgorithmDescriptor_t algoDesc, cudnnAlgorithm_t algorithm) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
static inline cudnnStatus_t cudnnDestroyAlgorithmDescriptor(cudnnAlgorithmDescriptor_t algoDesc) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}

/* A measured speed of an algorithm (cu: AlgorithmPerformance). */
typedef struct cudnnAlgorithmPerformanceStruct *cudnnAlgorithmPerformance_t;

static inline cudnnStatus_t cudnnCreateAlgorithmPerformance(cudnnAlgorithmPerformance_t *algoPerf, int numberToCreate) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
static inline cudnnStatus_t cudnnSetAlgorithmPerformance(cudnnAlgorithmPerformance_t algoPerf, cudnnAlgorithmDescriptor_t algoDesc,
                                                         cudnnStatus_t status, float time, size_t memory) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
static inline cudnnStatus_t cudnnDestroyAlgorithmPerformance(cudnnAlgorithmPerformance_t *algoPerf, int numberToDestroy) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}

/* A plan of a persistent RNN (cu: RNNPlan). */
typedef struct cudnnPersistentRNNPlan *cudnnPersistentRNNPlan_t;

static inline cudnnStatus_t cudnnCreatePersistentRNNPlan(cudnnRNNDescriptor_t rnnDesc, const int minibatch,
                                                         const cudnnDataType_t dataType, cudnnPersistentRNNPlan_t *plan) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
static inline cudnnStatus_t cudnnSetPersistentRNNPlan(cudnnRNNDescriptor_t rnnDesc, cudnnPersistentRNNPlan_t plan) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}
static inline cudnnStatus_t cudnnDestroyPersistentRNNPlan(cudnnPersistentRNNPlan_t plan) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}

/* The arithmetic of an RNN (cu: RNN.SetMatrixMathType), which cuDNN 9 takes when the RNN is made. */
static inline cudnnStatus_t cudnnSetRNNMatrixMathType(cudnnRNNDescriptor_t rnnDesc, cudnnMathType_t mType) {
    return CUDNN_STATUS_NOT_SUPPORTED;
}

#endif /* CUDNN_MAJOR >= 9 */

#endif /* STHENO_COMPAT_CUDNN_H */
